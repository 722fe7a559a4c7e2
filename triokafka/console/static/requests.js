// Requests to the console's server.

export const facts = JSON.parse(document.body.dataset.facts);
let refused = () => {};

// Calls `made` with the reason when the server wants a login.
export function onRefusal(made) { refused = made; }

export async function ask(address) {
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  const found = await response.json();
  if (response.status === 401 && facts.login) { refused(found.message); throw { error: "Log in", message: "", quiet: true }; }
  if (!response.ok) throw found;
  return found;
}

export async function send(address, document_) {
  const response = await fetch(address, {
    method: "POST", headers: { "Content-Type": "application/json", "X-Console-Token": facts.token },
    body: JSON.stringify(document_),
  });
  const found = await response.json();
  if (!response.ok) throw found;
  return found;
}
