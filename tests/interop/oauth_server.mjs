// An authorization server (oidc-provider), and an MCP server (TypeScript SDK) that accepts only its tokens.
// The argument is the folder node_modules. Prints its address. `GET /count` returns the number of issued tokens by grant type;
// `GET /burn` revokes all tokens of the client credentials grant.
import { createRequire } from 'node:module';
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const modules = createRequire(process.argv[2] + '/');
const load = async (name) => import(pathToFileURL(modules.resolve(name)));
const { default: Provider } = await load('oidc-provider');
const { default: express } = await load('express');
const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = await load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { requireBearerAuth } = await load('@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js');
const { InvalidTokenError } = await load('@modelcontextprotocol/sdk/server/auth/errors.js');

const app = express();
const http = createServer(app);
await new Promise((ready) => http.listen(0, '127.0.0.1', ready));
const base = `http://127.0.0.1:${http.address().port}`;
const resource = `${base}/mcp`;
const metadata = `${base}/.well-known/oauth-protected-resource/mcp`;
const SCOPES = 'tools:read tools:admin';
// Resource servers whose access tokens are JWTs, signed with the algorithm at the end of the URL.
const jwtResource = /^https:\/\/assistant\.example\/(RS256|ES256|EdDSA)$/;
const pair = (kind, options, alg) => ({ ...generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: alg });

const provider = new Provider(base, {
  clients: [{
    client_id: 'machine', client_secret: 'a secret: with %, / and +', grant_types: ['client_credentials'],
    redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_basic', scope: `${SCOPES} talk`,
  }, {
    client_id: 'poster', client_secret: 'a secret: with %, / and +', grant_types: ['client_credentials'],
    redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_post', scope: SCOPES,
  }, {
    // A resource server that introspects tokens (a2a_agent.py).
    client_id: 'agent', client_secret: 'knows', grant_types: [], redirect_uris: [], response_types: [],
  }],
  cookies: { keys: ['one'] },
  jwks: { keys: [
    pair('rsa', { modulusLength: 2048 }, 'RS256'), pair('ec', { namedCurve: 'P-256' }, 'ES256'), pair('ed25519', {}, 'EdDSA'),
  ] },
  features: {
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, indicator) => {
        const alg = jwtResource.exec(indicator)?.[1];
        if (alg) return { scope: 'talk', audience: indicator, accessTokenFormat: 'jwt', jwt: { sign: { alg } }, accessTokenTTL: 3600 };
        if (indicator !== resource) throw new Error('unknown resource');
        return { scope: SCOPES, audience: resource, accessTokenFormat: 'opaque', accessTokenTTL: 3600 };
      },
    },
  },
  scopes: ['openid', 'offline_access', 'talk', ...SCOPES.split(' ')],
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
});

const tokenCounts = { client_credentials: 0, authorization_code: 0, refresh_token: 0 };
provider.on('grant.success', (ctx) => { tokenCounts[ctx.oidc.params.grant_type] += 1; });
app.get('/count', (_, response) => response.json(tokenCounts));
const clientTokens = new Set();
provider.on('client_credentials.saved', (token) => clientTokens.add(token));
app.get('/burn', async (_, response) => {
  for (const token of clientTokens) await token.destroy();
  clientTokens.clear();
  response.json({});
});

// A user who always logs in and consents.
app.get('/interaction/:uid', async (request, response) => {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    await provider.interactionFinished(request, response, { login: { accountId: 'ada' } });
    return;
  }
  const existing = grantId && await provider.Grant.find(grantId);
  const grant = existing || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(' '));
  }
  await provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
});

app.get('/.well-known/oauth-protected-resource/mcp', (_, response) => response.json({
  resource, authorization_servers: [base], scopes_supported: ['tools:read'],
}));

const find = async (text) => (await provider.AccessToken.find(text)) ?? (await provider.ClientCredentials.find(text));
const verifier = {
  async verifyAccessToken(text) {
    const token = await find(text);
    if (!token || token.aud !== resource) throw new InvalidTokenError('not a token for this server');
    return { token: text, clientId: token.clientId, scopes: [...token.scopes], expiresAt: token.exp ?? Date.now() / 1000 + 60 };
  },
};
// The tool `admin` needs the scope `tools:admin`.
const requireScope = (request, response, next) => {
  const call = request.body;
  if (call?.method !== 'tools/call' || call.params?.name !== 'admin' || request.auth.scopes.includes('tools:admin')) return next();
  const challenge = `Bearer error="insufficient_scope", scope="tools:admin", resource_metadata="${metadata}"`;
  response.status(403).set('WWW-Authenticate', challenge).json({ error: 'insufficient_scope' });
};

function server() {
  const mcp = new McpServer({ name: 'guarded', version: '1' });
  const text = (words) => ({ content: [{ type: 'text', text: words }] });
  mcp.tool('whoami', async ({ authInfo }) => text(`${authInfo.clientId === 'machine' ? 'machine' : 'person'} ${authInfo.scopes.join(' ')}`));
  mcp.tool('admin', async () => text('done'));
  // Revokes the access token of this call, as if it had expired.
  mcp.tool('burn', async ({ authInfo }) => { await (await find(authInfo.token)).destroy(); return text('burnt'); });
  // Revokes all tokens of the grant.
  mcp.tool('revoke', async ({ authInfo }) => {
    const { grantId } = await find(authInfo.token);
    for (const kind of ['AccessToken', 'RefreshToken', 'AuthorizationCode']) await provider[kind].revokeByGrantId(grantId);
    return text('revoked');
  });
  return mcp;
}

app.all('/mcp', express.json(), requireBearerAuth({ verifier, resourceMetadataUrl: metadata }), requireScope, async (request, response) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await server().connect(transport);
  await transport.handleRequest(request, response, request.body);
});

app.use(provider.callback());
console.log(`listening on ${base}`);
