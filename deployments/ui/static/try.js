// The small chat: asks as an agent does, shows the answer as it comes, and lets a person play the tools.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("try");
  const talk = document.getElementById("talk");
  const state = document.getElementById("state");
  const button = document.getElementById("ask");
  let messages = [];
  let session = name();

  function name() {
    return `try-${Math.random().toString(36).slice(2, 10)}`;
  }

  function add(kind, text) {
    const part = document.createElement(kind);
    part.textContent = text;
    talk.append(part);
    return part;
  }

  function collect(calls, deltas) {
    for (const delta of deltas ?? []) {
      const call = (calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
      call.id ||= delta.id ?? "";
      call.function.name ||= delta.function?.name ?? "";
      call.function.arguments += delta.function?.arguments ?? "";
    }
  }

  async function* readFrames(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: {")) yield JSON.parse(part.slice(6));
      }
    }
  }

  function tell(report) {
    const line = document.createElement("p");
    line.className = "note";
    const ran = report.attempts.filter((one) => one.ran).map((one) => one.tier + (one.flaw || one.fault ? ` (${(one.flaw || one.fault).replaceAll("_", " ")})` : ""));
    const marks = [report.loop && `loop ${report.loop}`, report.repairs.length && `mended: ${report.repairs.join(", ")}`].filter(Boolean);
    line.append(`${ran.join(" → ") || "no tier"} · ${Math.round(report.total_ms)} ms${marks.length ? ` · ${marks.join(" · ")}` : ""} · `);
    const link = document.createElement("a");
    link.href = form.dataset.requests + encodeURIComponent(report.request_id);
    link.textContent = "its timeline";
    line.append(link);
    talk.append(line);
  }

  function play(calls) {
    const results = calls.map((call) => {
      const label = add("label", `Result of ${call.function.name}`);
      label.className = "field";
      const input = document.createElement("input");
      input.value = "It rains.";
      label.append(input);
      return [call, input];
    });
    const send = add("button", "Send the results");
    send.type = "button";
    send.className = "quiet";
    send.addEventListener("click", () => {
      send.remove();
      for (const [call, input] of results) {
        input.disabled = true;
        messages.push({ role: "tool", tool_call_id: call.id, content: input.value });
      }
      run(ask);
    });
    send.focus();
  }

  async function ask() {
    const body = { model: document.getElementById("model").value, stream: true, messages };
    if (document.getElementById("tooled").checked) body.tools = JSON.parse(document.getElementById("tools").value);
    const response = await fetch(form.dataset.ask, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": form.dataset.token, "X-MLX-Stack-Session": session },
      body: JSON.stringify(body),
    });
    if (!response.ok) {
      add("p", (await response.json()).error?.message ?? `HTTP ${response.status}`).className = "wrong";
      return;
    }
    const said = add("p", "");
    const calls = [];
    let report = null;
    for await (const frame of readFrames(response.body)) {
      report = frame.mlx_stack ?? report;
      if (frame.error) add("p", frame.error.message).className = "wrong";
      const delta = frame.choices?.[0]?.delta;
      if (delta?.content) said.textContent += delta.content;
      collect(calls, delta?.tool_calls);
    }
    if (!said.textContent) said.remove();
    for (const call of calls) add("pre", `${call.function.name}(${call.function.arguments})`);
    messages.push({ role: "assistant", content: said.textContent || null, ...(calls.length ? { tool_calls: calls } : {}) });
    if (report) tell(report);
    if (calls.length) play(calls);
  }

  async function run(task) {
    button.disabled = true;
    state.textContent = "asking …";
    try {
      await task();
    } catch (error) {
      add("p", error instanceof SyntaxError ? `The tools are no JSON: ${error.message}` : "The server doesn't answer.").className = "wrong";
    } finally {
      button.disabled = false;
      state.textContent = "";
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = document.getElementById("words");
    if (!messages.length) talk.replaceChildren();
    add("h3", words.value);
    messages.push({ role: "user", content: words.value });
    words.value = "";
    run(ask);
  });
  for (const example of document.querySelectorAll(".example")) {
    example.addEventListener("click", () => {
      messages = JSON.parse(example.dataset.messages);
      document.getElementById("tooled").checked = true;
      talk.replaceChildren();
      for (const one of messages) {
        if (one.role === "user") add("h3", one.content);
        else if (one.role === "tool") add("p", one.content).className = "note";
        else for (const call of one.tool_calls) add("pre", `${call.function.name}(${call.function.arguments})`);
      }
      run(ask);
    });
  }
  document.getElementById("anew").addEventListener("click", () => {
    messages = [];
    session = name();
    talk.replaceChildren();
    document.getElementById("words").focus();
  });
});
