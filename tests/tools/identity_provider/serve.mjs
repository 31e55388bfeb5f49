// An OpenID provider on this machine: `node serve.mjs PORT REDIRECT_URI SECRET`. Anybody signs in by name with any password; a name is the part
// of the address before @. Groups are those of GROUPS (JSON: name to list). The ID token says only who (sub); userinfo says the rest.
import { Provider } from "oidc-provider";

const [port, redirectUri, secret] = process.argv.slice(2);
const groups = JSON.parse(process.env.GROUPS ?? "{}");
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: "fairlead", client_secret: secret, redirect_uris: [redirectUri] }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  cookies: { keys: ["of-a-test"] },
  pkce: { required: () => true },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: !id.startsWith("unverified"), groups: groups[id] ?? [] }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log(`listening at ${issuer}`));
