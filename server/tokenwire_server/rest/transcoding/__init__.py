"""grpc-gateway's rules between HTTP and protobuf messages: pure functions over descriptors, one file a job."""
