/**
 * The lines of a long answer as they come. Leaving the loop, or aborting `signal`, ends the work behind it.
 * @param {string} path @param {unknown} body @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* lines(path, body, signal) {
  const reply = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!reply.ok || !reply.body) {
    yield { kind: "error", ...(await reply.json()) };
    return;
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const line of parts) yield JSON.parse(line);
  }
}

/** A file as a question carries it. @param {File} file @returns {Promise<{name: string, base64: string}>} */
export const packed = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done({ name: file.name, base64: String(reader.result).split(",")[1] ?? "" });
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
