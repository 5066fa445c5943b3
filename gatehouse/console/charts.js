// Small charts of one number over the last minutes, as inline SVG.

import { svg } from "./svg.js";

const WIDTH = 180;
const HEIGHT = 32;
const POINTS = 180;

/** Draws values a second, oldest first; what it shows it also says. */
export class Sparkline {
  constructor(label, kind, spell) {
    this.label = label;
    this.spell = spell;
    this.area = svg("path", { class: "area" });
    this.line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    const base = svg("path", { class: "base", "vector-effect": "non-scaling-stroke", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` });
    this.element = svg("svg", { class: `spark ${kind}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
      role: "img" });
    this.element.append(base, this.area, this.line);
  }

  draw(all) {
    const values = all.slice(-POINTS);
    const largest = Math.max(0, ...values);
    const step = WIDTH / (POINTS - 1);
    const start = WIDTH - (values.length - 1) * step;
    const height = (value) => HEIGHT - 1.5 - (largest ? value / largest : 0) * (HEIGHT - 3);
    const points = values.map((value, at) => `${(start + at * step).toFixed(1)} ${height(value).toFixed(1)}`);
    this.line.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
    this.area.setAttribute("d", points.length > 1 && largest
      ? `M${start.toFixed(1)} ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z` : "");
    const now = values.length ? values[values.length - 1] : 0;
    this.element.setAttribute("aria-label",
      `${this.label}: now ${this.spell(now)}, at most ${this.spell(largest)} in the last three minutes`);
  }
}
