// Elements of drawings.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function svg(tag, attributes) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
