// SPDX-License-Identifier: Apache-2.0
// Small steps on the document that cost nothing where nothing changed.

import { clockTime } from "./format.js";

export const byId = (id) => document.getElementById(id);

/** The address of `/`: a proxy may serve the pages below a path of its own. */
export const ROOT = byId("gpu") ? "../" : "./";

/** Data that the server put into the page. */
export const embedded = (id) => JSON.parse(byId(id).textContent);

/** Elements that mean nothing before they are filled: the server wrote them as data. */
export const parts = (id) => {
  const holder = document.createElement("template");
  holder.innerHTML = embedded(id);
  return holder.content;
};

export const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

export const setAttribute = (node, name, value) => {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
};

/** A `time` element; the reader's time zone is known here only. */
export const setTime = (node, seconds) => {
  setText(node, clockTime(seconds));
  setAttribute(node, "datetime", new Date(seconds * 1000).toISOString());
};

const fill = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

export const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
