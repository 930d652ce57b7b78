// Use each feature of the AI SDK with each provider, whole and streamed: `node ai_sdk_features.mjs URL`.
// The server's model plays what the last message names. Prints a line of JSON for each case: its name, and what was
// wrong, which is "" where nothing was.
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";

const { resolve } = createRequire(`${process.env.NODE_PREFIX}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const [{ generateText, streamText, tool, stepCountIs, isStepCount, Output, APICallError }, { z }] = await Promise.all(
  ["ai", "zod"].map(load),
);
const [{ createAnthropic }, { createOpenAI }, { createOpenAICompatible }] = await Promise.all(
  ["@ai-sdk/anthropic", "@ai-sdk/openai", "@ai-sdk/openai-compatible"].map(load),
);

const known = { baseURL: `${process.argv[2]}/v1`, apiKey: "sk-none" };
const local = createOpenAICompatible({ ...known, name: "local", includeUsage: true, supportsStructuredOutputs: true });
const PROVIDERS = {
  anthropic: createAnthropic(known)("fast"),
  "openai chat": createOpenAI(known).chat("fast"),
  "openai responses": createOpenAI(known).responses("fast"),
  "openai-compatible": local("fast"),
};
const THINKING = {
  anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
  openai: { reasoningSummary: "auto", forceReasoning: true },
};
const HELLO = "Hello from above.";
const REFUSAL = "I can't help with that.";
const weather = {
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
};
const runs = { get_weather: tool({ ...weather, execute: async ({ city }) => `sunny in ${city}` }) };
const shown = { get_weather: tool(weather) };
const twoSteps = (stepCountIs ?? isStepCount)(2);
const say = (play) => ({ prompt: `play:${play}.` });

const is = (got, wanted, what) => {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) {
    throw new Error(`${what} is ${JSON.stringify(got)}, and not ${JSON.stringify(wanted)}`);
  }
};
const isText = (wanted, reason) => (got) => {
  is(got.text, wanted, "text");
  is(got.finishReason, reason, "finishReason");
};
const calls = (...cities) => (got) => {
  is(got.toolCalls.map((call) => [call.toolName, call.input]), cities.map((city) => ["get_weather", { city }]), "calls");
  is(got.finishReason, "tool-calls", "finishReason");
};

const FEATURES = {
  text: [say("plain"), (got) => {
    isText(HELLO, "stop")(got);
    is([got.usage.inputTokens, got.usage.outputTokens], [11, 7], "usage");
  }],
  system: [{ ...say("plain"), system: "Be good." }, isText(HELLO, "stop")],
  turns: [{ messages: [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "play:plain." },
  ] }, isText(HELLO, "stop")],
  settings: [{ ...say("plain"), temperature: 0.3, maxOutputTokens: 2000 }, isText(HELLO, "stop")],
  stop: [{ ...say("stop"), stopSequences: ["END"] }, isText("As far as", "stop")],
  length: [say("length"), isText("As far as I", "length")],
  filter: [say("filter"), isText("I may not", "content-filter")],
  reasoning: [{ ...say("reasoning"), providerOptions: THINKING }, (got, provider) => {
    isText(HELLO, "stop")(got);
    // OpenAI's chat completions have no place for reasoning.
    is(got.reasoningText ?? null, provider === "openai chat" ? null : "Let me see.", "reasoningText");
  }],
  call: [{ ...say("call"), tools: runs, stopWhen: twoSteps }, (got) => {
    isText(HELLO, "stop")(got);
    is(got.steps[0].toolResults.map((one) => one.output), ["sunny in Paris"], "result");
  }],
  calls: [{ ...say("calls"), tools: shown }, calls("Paris", "Rome")],
  "text and call": [{ ...say("said-call"), tools: shown }, (got) => {
    is(got.text, "I'll look.", "text");
    calls("Paris")(got);
  }],
  "forced call": [{ ...say("call"), tools: shown, toolChoice: "required" }, calls("Paris")],
  schema: [{ ...say("json"), output: Output.object({ schema: z.object({ city: z.string() }) }) }, (got) =>
    is(got.output, { city: "Paris" }, "output")],
  refusal: [say("refusal"), (got, provider) => {
    // openai-compatible of version 6 doesn't read refusals.
    const unread = provider === "openai-compatible" && !got.text;
    isText(unread ? "" : REFUSAL, unread ? "stop" : "content-filter")(got);
  }],
};
const NAMES = ["text", "finishReason", "usage", "reasoningText", "toolCalls", "steps"];

async function ask(model, options, streamed) {
  const given = { model, maxRetries: 0, ...options };
  if (!streamed) return generateText(given);
  const failed = [];
  const result = streamText({ ...given, onError: ({ error }) => failed.push(error) });
  for await (const _ of result.fullStream ?? result.stream);
  if (failed.length) throw failed[0];
  const names = options.output ? [...NAMES, "output"] : NAMES;
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await result[name]])));
}

async function tellError(model, streamed) {
  try {
    await ask(model, say("fails"), streamed);
  } catch (error) {
    if (!APICallError.isInstance(error)) throw error;
    is([error.statusCode, error.isRetryable, error.message.length > 20], [502, true, true], "error");
    return;
  }
  throw new Error("no error came");
}

async function run(provider, feature, streamed, work) {
  let wrong = "";
  try {
    await work();
  } catch (error) {
    wrong = `${error.name}: ${error.message}`.slice(0, 400) || "?";
  }
  console.log(JSON.stringify({ case: `${provider}, ${feature}, ${streamed ? "streamed" : "whole"}`, wrong }));
}

for (const [provider, model] of Object.entries(PROVIDERS)) {
  for (const streamed of [false, true]) {
    for (const [feature, [options, check]] of Object.entries(FEATURES)) {
      await run(provider, feature, streamed, async () => check(await ask(model, options, streamed), provider));
    }
    await run(provider, "error", streamed, () => tellError(model, streamed));
  }
}
