// Rules for the hand-written scripts of the web UI. `make lint` runs them.
import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["fairlead_web/static/vendor/**", "node_modules/**"] },
  js.configs.recommended,
  {
    files: ["fairlead_web/static/js/*.js"],
    languageOptions: { sourceType: "module", globals: { ...globals.browser, htmx: "readonly" } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-implicit-globals": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error", // the content security policy forbids all three
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "Names from the API are hostile text: set textContent, or let htmx swap a rendered part." },
        { property: "outerHTML", message: "Names from the API are hostile text: set textContent, or let htmx swap a rendered part." },
      ],
      "no-var": "error",
      "prefer-const": "error",
      "no-shadow": "error",
      "no-unused-vars": "error",
      curly: ["error", "multi-line"],
    },
  },
];
