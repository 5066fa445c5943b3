// What every page of the console has: a life that ends when another page is opened, calls that are repeated while
// somebody looks, and one way to say what went wrong.

import { fill, h, visible } from "./dom.js";

export class Page {
  /** `onProblem` is told of what concerns the whole console: not logged in any more, no answer. */
  constructor(onProblem) {
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.onProblem = onProblem;
    this.notice = h("div.notice", { role: "alert" });
    this.told = null;                       // whose problem stands there
  }

  stop() {
    this.controller.abort();
  }

  onStop(act) {
    this.signal.addEventListener("abort", act, { once: true });
  }

  /** Run now and again after so long, and not while nobody looks. Returns a function that runs it at once. */
  every(ms, act) {
    let timer = null;
    let running = false;
    let wanted = false;                     // while it ran, somebody asked for another one
    const run = async () => {
      clearTimeout(timer);
      wanted = running;
      if (running || this.signal.aborted) return;
      running = true;
      try {
        await act();
        if (this.told === run) this.clear();
      } catch (error) {
        if (!this.concernsAll(error)) this.tell(error, run);
      } finally {
        running = false;
        if (!this.signal.aborted && !document.hidden) timer = setTimeout(run, wanted ? 0 : ms);
      }
    };
    const look = () => { if (!document.hidden) run(); };
    document.addEventListener("visibilitychange", look);
    this.onStop(() => { clearTimeout(timer); document.removeEventListener("visibilitychange", look); });
    run();
    return run;
  }

  /** Run something somebody asked for; what goes wrong is said. Returns whether it went well. */
  async attempt(act) {
    try {
      await act();
      this.clear();
      return true;
    } catch (error) {
      if (!this.concernsAll(error) || error.status === 0) this.tell(error, act);
      return false;
    }
  }

  /** Whether the console as a whole has said it, or nobody is left to be told. */
  concernsAll(error) {
    return error.name === "AbortError" || this.signal.aborted || this.onProblem(error);
  }

  /** Says what went wrong for `whom`; what is asked again and again takes back no more than its own words. */
  tell(error, whom) {
    this.told = whom;
    fill(this.notice, h("p.problem", {}, spell(error)));
  }

  clear() {
    this.told = null;
    if (this.notice.childNodes.length) fill(this.notice);
  }
}

/** What a person can make of a refusal. */
export function spell(error) {
  const detail = visible(error.message ?? String(error));
  if (error.status === 403) return `Not allowed: ${detail}`;
  if (error.status === 501) return `This hub does not have it yet: ${detail}`;
  return detail.charAt(0).toUpperCase() + detail.slice(1);
}

/** A page's heading, and beside it what can be done. */
export function heading(title, ...beside) {
  return h("div.heading", {}, h("h1", { tabindex: -1 }, title), ...beside);
}

/** A field with its label: `field("Address", input, "what it is for")`. */
let fields = 0;
export function field(title, input, help) {
  fields += 1;
  input.id = `field-${fields}`;
  const said = help ? h("small", { id: `help-${fields}` }, help) : null;
  if (said) input.setAttribute("aria-describedby", said.id);
  return h("div.field", {}, h("label", { for: input.id }, title), input, said);
}

/** Ask before something that cannot be taken back. Resolves to whether to go on. */
export function confirmed(question, act) {
  return new Promise((resolve) => {
    let sure = false;
    const end = (answer) => () => { sure = answer; dialog.close(); };
    // One of its own for each question: a dialog's close event comes late, perhaps when the next one is open already.
    const dialog = h("dialog", { onclose: () => { dialog.remove(); resolve(sure); } }, h("p", {}, question),
      h("div.buttons", {}, h("button", { type: "button", onclick: end(false), autofocus: true }, "Cancel"),
        h("button.danger", { type: "button", onclick: end(true) }, act)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
