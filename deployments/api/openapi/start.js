SwaggerUIBundle({
  url: document.documentElement.dataset.description,
  dom_id: "#ui",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
});
