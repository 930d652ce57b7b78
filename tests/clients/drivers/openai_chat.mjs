// Do the job with the openai package for Node over chat completions: `node openai_chat.mjs TASK`.
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";
import { SCHEMAS, TURNS_MAX, call, run } from "./job_tools.mjs";

// The package is the client's own install, beside which this file doesn't stand.
const found = createRequire(`${process.env.NODE_PREFIX}/`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(found));
const tools = SCHEMAS.map((schema) => ({ type: "function", function: schema }));

await run(async (task) => {
  const client = new OpenAI();
  const messages = [{ role: "user", content: task }];
  for (let turn = 0; turn < TURNS_MAX; turn++) {
    const stream = client.chat.completions.stream({
      model: "fast", messages, tools, stream_options: { include_usage: true },
    });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    messages.push({ role: "assistant", content: message.content, tool_calls: message.tool_calls });
    if (!message.tool_calls?.length) return message.content;
    for (const one of message.tool_calls) {
      const content = call(one.function.name, JSON.parse(one.function.arguments));
      messages.push({ role: "tool", tool_call_id: one.id, content });
    }
  }
  return "no end";
});
