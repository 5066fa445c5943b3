// The form that asks who it is.

import { h } from "./dom.js";
import { field, spell } from "./page.js";

/** `enter(user, secret)` throws what the hub says; `back`, where there is one, goes on without. */
export function logIn(reason, enter, back) {
  const user = h("input", { name: "username", autocomplete: "username", spellcheck: "false", autocapitalize: "none" });
  const secret = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const said = h("p.problem", { role: "alert", hidden: !reason }, reason);
  const button = h("button.main", { type: "submit" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await enter(user.value.trim(), secret.value);
    } catch (error) {
      said.textContent = error.status === 401 ? "This is not a user and password of this hub." : spell(error);
      said.hidden = false;
      secret.value = "";
      secret.focus();
    } finally {
      button.disabled = false;
    }
  };
  return h("form.card.login", { onsubmit: submit }, h("h1", {}, "Log in"), said,
    field("User", user, "Leave it empty for an API key or a token."), field("Password, API key or token", secret),
    h("div.buttons", {}, button, back ? h("button", { type: "button", onclick: back }, "Go on without") : null),
    h("p.soft", {}, "The password stays in this page's memory. Loading the page anew forgets it."));
}
