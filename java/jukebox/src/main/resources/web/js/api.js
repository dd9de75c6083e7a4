// The requests to the service.

/** A refused request; `status` is that of HTTP, 0 if there was no response. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, body) {
  let response;
  try {
    response = await fetch("/api/" + path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "The service does not respond.");
  }
  if (response.status === 204) return null;
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) {
    if (response.status === 401 && path !== "login" && path !== "me") window.dispatchEvent(new Event("signed-out"));
    throw new ApiError(response.status, reply.error ?? "The request failed (" + response.status + ").");
  }
  return reply;
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body ?? {});
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path) => request("DELETE", path);

/** Sends a file; `progress` is called with 0 to 1. */
export function upload(file, progress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", "/api/tracks?name=" + encodeURIComponent(file.name.slice(-200)));
    sending.setRequestHeader("Content-Type", "application/octet-stream");
    sending.responseType = "json";
    sending.upload.addEventListener("progress", (event) => progress(event.total ? event.loaded / event.total : 0));
    sending.addEventListener("load", () => {
      if (sending.status === 201) resolve(sending.response);
      else reject(new ApiError(sending.status, sending.response?.error ?? "The upload failed (" + sending.status + ")."));
    });
    sending.addEventListener("error", () => reject(new ApiError(0, "The service does not respond.")));
    sending.send(file);
  });
}
