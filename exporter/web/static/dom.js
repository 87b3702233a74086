// SPDX-License-Identifier: Apache-2.0
// Small steps on the document that cost nothing where nothing changed.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

export const setAttribute = (node, name, value) => {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
};

export const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const fill = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};

/** The data that the server put into the page. */
export const embedded = (id, from = document) => JSON.parse(from.getElementById(id).textContent);
