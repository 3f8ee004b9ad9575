from __future__ import annotations
async def test_a(http, backend):
    r = await http.get("/v1/models"); print(r.status_code, r.text, r.headers)
    r = await http.get("/health"); print(r.status_code, r.text)
    for p in ("/v1/chat/completions/", "/v1//models", "/nope", "/v1/models/org/tiny", "/v1/models/", "/v1/models/nope"):
        r = await http.get(p); print(p, r.status_code, r.text)
    for m in ("GET", "HEAD", "OPTIONS"):
        r = await http.request(m, "/v1/chat/completions"); print(m, r.status_code, r.text, r.headers)
    r = await http.head("/v1/models"); print(r.status_code, r.headers)
    body={"model":"org/tiny","messages":[{"role":"user","content":"hi"}],"n":2}
    r = await http.post("/v1/chat/completions", json=body); print(r.status_code, r.text)
    r = await http.post("/v1/chat/completions", json=body|{"stream":True,"stream_options":{"include_usage":True}}); print(r.status_code, r.text)
    r = await http.post("/v1/completions", json={"model":"org/tiny","prompt":["a",[1,2]],"stream":True,"logprobs":2}); print(r.status_code, r.text)
    r = await http.post("/v1/completions", json={"model":"org/tiny","prompt":["a",[1,2]],"logprobs":1}); print(r.status_code, r.text)
    r = await http.post("/v1/embeddings", json={"model":"mini","input":["a"]}); print(r.status_code, r.text)
    r = await http.get("/openapi.json"); print(r.status_code, r.text[:200])
    print((await http.post("/v1/embeddings", content=b"{", headers={})).text)
