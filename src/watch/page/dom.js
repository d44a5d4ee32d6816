// Elements of the page, and questions to the server.
export const $ = (id) => document.getElementById(id);

// An element with attributes, listeners (onclick) and children; texts are never read as HTML.
export function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'rect', 'g'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export async function ask(path, parameters = [], body = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const options =
    body === undefined
      ? {}
      : { method: 'POST', body, headers: { 'X-Hinge-Watch': '1', 'Content-Type': 'application/octet-stream' } };
  const response = await fetch(query ? `${path}?${query}` : path, options);
  const object = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(object.error || `the server says ${response.status}`);
  return object;
}

export const announce = (text) => {
  $('announce').textContent = text;
};

export function alertIn(element, text) {
  element.prepend(make('p', { class: 'bad', role: 'alert' }, text));
}
