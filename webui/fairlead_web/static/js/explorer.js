// The API's operations by Swagger UI. A request goes to this site, which has the session's token, and comes back as the API answered it.

/* global SwaggerUIBundle */

function relayed(place, request) {
  if (request.loadSpec) return request;
  const { pathname, search } = new URL(request.url, location.origin);
  const asked = { method: request.method, path: pathname + search, body: request.body };
  return {
    ...request,
    url: place.dataset.call,
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": place.dataset.csrf },
    body: JSON.stringify(asked),
  };
}

export function start(place) {
  SwaggerUIBundle({
    domNode: place,
    url: place.dataset.document,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    filter: true,
    validatorUrl: null,
    showMutatedRequest: false,
    syntaxHighlight: { activated: false },
    requestInterceptor: (request) => relayed(place, request),
  });
}
