// Tries the `openai` package of npm on a service: openai.mjs BASE_URL MODEL. Prints what came back, as JSON.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const hello = [{ role: "user", content: "Grüße, 世界" }];
const sum = [{ role: "user", content: "What is 6 times 7?" }];
const tell = [{ role: "user", content: "Tell me of 'Genoa' with 558000 people" }];
const City = z.object({ name: z.string(), population: z.number().int() });
const said = {};

said.chat = (await client.chat.completions.create({ model, messages: hello })).choices[0].message.content;

said.stream = [];
for await (const chunk of await client.chat.completions.create({ model, messages: hello, stream: true })) {
  said.stream.push(chunk.choices[0]?.delta.content ?? "");
}

const tool = {
  type: "function",
  function: {
    name: "multiply",
    description: "a times b",
    parse: JSON.parse,
    function: ({ a, b }) => String(a * b),
    parameters: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      required: ["a", "b"],
    },
  },
};
for (const stream of [false, true]) {
  const runner = client.chat.completions.runTools({ model, messages: sum, tools: [tool], stream });
  const final = await runner.finalContent();
  said[stream ? "streamed_tools" : "tools"] = {
    final,
    roles: runner.messages.map((message) => message.role),
    arguments: JSON.parse(runner.messages[1].tool_calls[0].function.arguments),
  };
}

const response_format = zodResponseFormat(City, "city");
said.structured = (await client.chat.completions.parse({ model, messages: tell, response_format })).choices[0].message.parsed;

said.responses = (await client.responses.create({ model, input: "Hello" })).output_text;
const events = [];
const responses = client.responses.stream({ model, input: "Hello" });
for await (const event of responses) events.push(event.type);
said.responses_stream = { text: (await responses.finalResponse()).output_text, first: events[0], last: events.at(-1) };

said.models = (await client.models.list()).data.map((one) => one.id);

said.errors = {};
for (const [name, body] of Object.entries({
  unknown_model: { model: "nobody", messages: hello },
  wrong_value: { model, messages: hello, temperature: 9 },
})) {
  try {
    await client.chat.completions.create(body);
  } catch (error) {
    said.errors[name] = { kind: error.constructor.name, code: error.code, param: error.param };
  }
}

console.log(JSON.stringify(said));
