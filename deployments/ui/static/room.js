// What every page of the control room does: moving pieces, moments in the reader's zone, questions before orders.
"use strict";

(() => {
  const SAID_MS = 4000;

  function localize(within) {
    const now = new Date();
    for (const time of within.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const today = at.toDateString() === now.toDateString();
      const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
      const day = at.toLocaleDateString([], { month: "short", day: "numeric" });
      time.textContent = today ? clock : `${day}, ${clock}`;
      time.title = time.dateTime;
    }
  }

  function say(words) {
    const said = document.getElementById("said");
    said.textContent = words;
    setTimeout(() => { if (said.textContent === words) said.textContent = ""; }, SAID_MS);
  }

  // What is focused stays focused, and what was scrolled to stays in view.
  function replace(piece, html) {
    const active = piece.contains(document.activeElement) ? document.activeElement : null;
    const to = active?.getAttribute("href");
    const left = piece.querySelector(".scroll")?.scrollLeft ?? 0;
    piece.innerHTML = html;
    localize(piece);
    const scroll = piece.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = left;
    if (active) (to ? [...piece.querySelectorAll("a")].find((a) => a.getAttribute("href") === to) : scroll)?.focus({ preventScroll: true });
  }

  function follow(place) {
    let source = null;
    const open = () => {
      source = new EventSource(place.dataset.events);
      source.onmessage = (event) => {
        for (const [name, html] of Object.entries(JSON.parse(event.data))) {
          const piece = document.querySelector(`[data-piece="${name}"]`);
          if (piece) replace(piece, html);
        }
        document.body.dataset.live = "yes";
      };
      // The browser asks again by itself, and is then sent every piece anew.
      source.onerror = () => {
        const away = document.createElement("span");
        away.className = "pill bad";
        away.textContent = "no news from the server: this is how it was";
        document.querySelector('[data-piece="pulse"]')?.replaceChildren(away);
      };
    };
    // A page that nobody sees costs the server nothing.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { source?.close(); source = null; } else if (!source) open();
    });
    if (!document.hidden) open();
  }

  function ask(words) {
    const dialog = document.getElementById("question");
    document.getElementById("question-words").textContent = words;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    });
  }

  document.addEventListener("htmx:confirm", (event) => {
    if (!event.detail.question) return;
    event.preventDefault();
    ask(event.detail.question).then((yes) => { if (yes) event.detail.issueRequest(true); });
  });
  // The event's own target is what was there before.
  document.addEventListener("htmx:afterSwap", () => localize(document));
  document.addEventListener("htmx:responseError", () => say("The server refused that: load the page again."));
  document.addEventListener("htmx:sendError", () => say("The server doesn't answer."));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("The browser doesn't let this page copy."));
  });
  document.addEventListener("DOMContentLoaded", () => {
    localize(document);
    // On a phone the pages are a row wider than the screen.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const place = document.querySelector("[data-events]");
    if (place) follow(place);
  });
})();
