// The list of versions. It lies beside all versions, so that the pages of an old one know those that came later.
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("version");
  const others = (window.fairleadVersions ?? []).filter((one) => one !== list.dataset.version);
  list.append(...others.map((one) => new Option(one)));
  list.addEventListener("change", () => {
    location.href = `${list.dataset.root}../${list.value}/index.html`;
  });
});
