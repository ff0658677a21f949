// Requests to the server.

export const key = () => sessionStorage.getItem("key");

// Sends a request and returns the JSON of its response; throws an Error with `status` and `wait` (seconds) otherwise.
export async function send(method, path, body, options = {}) {
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  if (body !== undefined && !options.raw) headers["Content-Type"] = "application/json";
  const content = body === undefined || options.raw ? body : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: content, signal: options.signal });
  const found = await response.json().catch(() => ({}));
  if (response.ok) return found;
  const error = new Error(found.error ?? `The server returned status ${response.status}.`);
  error.status = response.status;
  error.wait = Number(response.headers.get("Retry-After")) || 0;
  throw error;
}
