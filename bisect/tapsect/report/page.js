// Joins the pictures, the search and the line of detail.  No text of a model is ever markup here:
// all of it goes through textContent.
(function () {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function paint(doc, isDark) {
    const ink = isDark ? "#c8d0d8" : "#33393f", line = isDark ? "#3a414a" : "#dde2e7";
    for (const plot of doc.roots()) {
      for (const axis of [...plot.left, ...plot.below]) {
        if (axis.axis_label_text_color === undefined) continue;
        axis.setv({axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: line,
          major_tick_line_color: line, minor_tick_line_color: line});
      }
      for (const grid of plot.center) {
        if (grid.grid_line_color !== undefined) grid.grid_line_color = line;
      }
      for (const legend of plot.above) {
        if (legend.label_text_color !== undefined) legend.label_text_color = ink;
      }
      for (const each of plot.renderers) {
        if (each.name === "labels") each.glyph.text_color = ink;
      }
    }
  }

  function tell(first, second) {
    const place = byId("detail");
    place.textContent = "";
    const name = document.createElement("strong");
    name.textContent = first;
    place.append(name, document.createElement("br"), second);
  }

  function start(doc) {
    const plots = {}, sources = {};
    for (const plot of doc.roots()) {
      plots[plot.name] = plot;
      for (const each of plot.renderers) {
        const source = each.data_source;
        if (source && source.name) sources[source.name] = source;
      }
    }
    const held = byId("names"), names = held ? JSON.parse(held.textContent) : [];
    const chosen = (source) => source.selected.indices[0];

    function centre(home) {
      const plot = plots.graph, nodes = sources.nodes;
      if (!plot || home === undefined) return;
      const x = nodes.data.x[home], y = nodes.data.y[home];
      const w = (plot.x_range.end - plot.x_range.start) / 2, h = (plot.y_range.end - plot.y_range.start) / 2;
      plot.x_range.setv({start: x - w, end: x + w});
      plot.y_range.setv({start: y - h, end: y + h});
      nodes.selected.indices = [home];
    }

    let busy = false;  // a choice in one picture chooses in the other, not back again
    function show(number, point) {
      const entry = names[number];
      if (!entry) return;
      busy = true;
      const [name, home, first] = entry, at = point === undefined ? first : point;
      centre(home);
      if (sources.points && at !== null && at >= 0) {
        sources.points.selected.indices = [at];
        tell(name, sources.points.data.tensor[at] + ": " + sources.points.data.text[at]);
      } else {
        tell(name, "not tapped: nothing was measured here");
      }
      busy = false;
    }

    if (sources.points) {
      const points = sources.points;
      points.selected.properties.indices.change.connect(() => {
        const at = chosen(points);
        if (!busy && at !== undefined) show(points.data.x[at], at);
      });
    }
    if (sources.nodes) {
      const nodes = sources.nodes;
      nodes.selected.properties.indices.change.connect(() => {
        const at = chosen(nodes);
        if (busy || at === undefined) return;
        const number = nodes.data.number[at];
        if (number >= 0) show(number);
        else tell(nodes.data.name[at], nodes.data.text[at]);
      });
    }
    search(names, show);
    keys(plots.graph);
    paint(doc, dark.matches);
    dark.addEventListener("change", () => paint(doc, dark.matches));
    addEventListener("beforeprint", () => paint(doc, false));
    addEventListener("afterprint", () => paint(doc, dark.matches));
    document.documentElement.dataset.ready = "yes";
  }

  function search(names, show) {
    const box = byId("search"), list = byId("found");
    if (!box) return;
    box.addEventListener("input", () => {
      list.textContent = "";
      const asked = box.value.trim().toLowerCase();
      if (!asked) return;
      let count = 0;
      for (let n = 0; n < names.length && count < 20; n++) {
        if (!names[n] || !names[n][0].toLowerCase().includes(asked)) continue;
        const button = document.createElement("button"), item = document.createElement("li");
        button.type = "button";
        button.textContent = names[n][0];
        button.addEventListener("click", () => show(n));
        item.append(button);
        list.append(item);
        count++;
      }
      if (!count) list.textContent = "no node has this in its name";
    });
    box.addEventListener("keydown", (event) => {
      const first = list.querySelector("button");
      if (event.key === "Enter" && first) first.click();
    });
  }

  function keys(plot) {
    const place = byId("graph");
    if (!plot || !place) return;
    const x = plot.x_range, y = plot.y_range;
    const from = [x.start, x.end, y.start, y.end];
    const move = (dx, dy) => {
      const w = (x.end - x.start) * dx, h = (y.end - y.start) * dy;
      x.setv({start: x.start + w, end: x.end + w});
      y.setv({start: y.start + h, end: y.end + h});
    };
    const zoom = (by) => {
      for (const range of [x, y]) {
        const middle = (range.start + range.end) / 2, half = (range.end - range.start) / 2 * by;
        range.setv({start: middle - half, end: middle + half});
      }
    };
    const acts = {
      ArrowLeft: () => move(-.2, 0), ArrowRight: () => move(.2, 0), ArrowUp: () => move(0, .2),
      ArrowDown: () => move(0, -.2), "+": () => zoom(.8), "=": () => zoom(.8), "-": () => zoom(1.25),
      "0": () => { x.setv({start: from[0], end: from[1]}); y.setv({start: from[2], end: from[3]}); },
    };
    place.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
      if (act) { event.preventDefault(); act(); }
    });
  }

  function wait(tries) {
    const doc = window.Bokeh && Bokeh.documents[0];
    if (doc && doc.roots().length && doc.is_idle) start(doc);
    else if (tries > 0) setTimeout(() => wait(tries - 1), 50);
  }
  if (byId("names")) wait(600);
})();
