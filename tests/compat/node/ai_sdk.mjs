// Tries Vercel's AI SDK on a service: ai_sdk.mjs BASE_URL MODEL. Prints what came back, as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
globalThis.AI_SDK_LOG_WARNINGS = false;
const make = (supportsStructuredOutputs) =>
  createOpenAICompatible({ name: "mine", baseURL, apiKey: "none", includeUsage: true, supportsStructuredOutputs });
const provider = make(true);
const model = provider(name);
const tell = "Tell me of 'Genoa' with 558000 people";
const City = z.object({ name: z.string(), population: z.number().int() });
const said = {};

const chat = await generateText({ model, system: "Be kind.", prompt: "Grüße, 世界" });
said.chat = { text: chat.text, finish: chat.finishReason, output_tokens: chat.usage.outputTokens };

const stream = streamText({ model, prompt: "Grüße, 世界" });
said.stream = [];
for await (const text of stream.textStream) said.stream.push(text);
said.stream_usage = (await stream.usage).outputTokens;

const multiply = tool({
  description: "a times b",
  inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
  execute: async ({ a, b }) => String(a * b),
});
const ask = { model, prompt: "What is 6 times 7?", tools: { multiply }, stopWhen: stepCountIs(3) };
const steps = (all) => all.map((step) => [step.finishReason, step.toolCalls.map((call) => call.input)]);
const loop = await generateText(ask);
said.tools = { text: loop.text, steps: steps(loop.steps) };
const streamed = streamText(ask);
await streamed.consumeStream();
said.streamed_tools = { text: await streamed.text, steps: steps(await streamed.steps) };
const forced = await generateText({ ...ask, toolChoice: "required", stopWhen: stepCountIs(1) });
said.required = forced.toolCalls.map((call) => [call.toolName, call.input]);

const output = Output.object({ schema: City });
said.structured = (await generateText({ model, prompt: tell, output })).output;
const partial = streamText({ model, prompt: tell, output });
said.partial = [];
for await (const one of partial.partialOutputStream) said.partial.push(one);
said.choice = (
  await generateText({ model, prompt: "Is it red or blue?", output: Output.choice({ options: ["blue", "red"] }) })
).output;
// Without the flag the SDK asks for any JSON object.
said.json_object = (await generateText({ model: make(false)(name), prompt: tell, output: Output.json() })).output;

const Product = Output.object({ schema: z.object({ product: z.string() }) });
for (const strict of [true, false]) {
  const both = await generateText({ ...ask, tools: { multiply: { ...multiply, strict } }, output: Product });
  said[strict ? "strict_tool_then_structured" : "tool_then_structured"] = { ...both.output, steps: both.steps.length };
}

try {
  await generateText({ model: provider("nobody"), prompt: "hi", maxRetries: 0 });
} catch (error) {
  said.unknown_model = { kind: error.name, status: error.statusCode, message: error.message };
}

console.log(JSON.stringify(said));
