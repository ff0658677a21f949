// Asking the server.

export const key = () => sessionStorage.getItem("key");

export async function ask(method, path, body, options = {}) {
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  if (body !== undefined && !options.raw) headers["Content-Type"] = "application/json";
  const content = body === undefined || options.raw ? body : JSON.stringify(body);
  const answer = await fetch(path, { method, headers, body: content, signal: options.signal });
  const found = await answer.json().catch(() => ({}));
  if (answer.ok) return found;
  const error = new Error(found.error ?? `The server answered ${answer.status}.`);
  error.status = answer.status;
  error.wait = Number(answer.headers.get("Retry-After")) || 0;
  throw error;
}
