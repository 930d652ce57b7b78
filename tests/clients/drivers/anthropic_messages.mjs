// Do the job with @anthropic-ai/sdk: `node anthropic_messages.mjs TASK`.
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";
import { SCHEMAS, TURNS_MAX, call, run } from "./job_tools.mjs";

const found = createRequire(`${process.env.NODE_PREFIX}/`).resolve("@anthropic-ai/sdk");
const { default: Anthropic } = await import(pathToFileURL(found));
const tools = SCHEMAS.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));

await run(async (task) => {
  const client = new Anthropic();
  const messages = [{ role: "user", content: task }];
  for (let turn = 0; turn < TURNS_MAX; turn++) {
    const message = await client.messages
      .stream({ model: "fast", max_tokens: 2048, messages, tools })
      .finalMessage();
    messages.push({ role: "assistant", content: message.content });
    const calls = message.content.filter((block) => block.type === "tool_use");
    if (!calls.length) return message.content.map((block) => block.text ?? "").join("");
    const results = calls.map((one) => ({
      type: "tool_result", tool_use_id: one.id, content: call(one.name, one.input),
    }));
    messages.push({ role: "user", content: results });
  }
  return "no end";
});
