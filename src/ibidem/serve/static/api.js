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
  throw failure(response, found);
}

// Sends a request until the server is not too busy for it; `onWait` is called before each pause, `isStopped` after it.
export async function sendUntilFree(method, path, body, { onWait, isStopped, ...options } = {}) {
  for (;;) {
    try {
      return await send(method, path, body, options);
    } catch (error) {
      if (!error.wait) throw error;
      onWait?.(error);
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.wait));
      if (isStopped?.()) throw error;
    }
  }
}

// Downloads a file under a name. The request needs the key in its header, so a link to the file would not do.
export async function download(path, name) {
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  const response = await fetch(path, { headers });
  if (!response.ok) throw failure(response, await response.json().catch(() => ({})));
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function failure(response, found) {
  const error = new Error(found.error ?? found.message ?? `The server returned status ${response.status}.`);
  error.status = response.status;
  error.wait = Number(response.headers.get("Retry-After")) || 0;
  return error;
}

export const explain = (error) => (error.status ? error.message : "The server cannot be reached.");
