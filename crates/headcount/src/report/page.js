"use strict";

// Draws the plots of a simulation report from the numbers in the page. Loads nothing.
(async () => {
  const config = {
    displaylogo: false, responsive: true, doubleClick: "reset",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const element = (id) => document.getElementById(id);
  const data = JSON.parse(element("data").textContent);

  // What plotly shows, it reads as markup; a name is not.
  const plain = (text) =>
    text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  // Okabe and Ito's colours, told apart by colour-blind people, without those that a background of
  // this kind swallows; when they are used up, the lines are dashed.
  const palettes = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a06a00", "#56b4e9", "#444444"],
    dark: ["#56b4e9", "#e69f00", "#1fc496", "#e08fc0", "#f0e442", "#d55e00", "#d0d0d0"],
  };
  const states = {
    light: { busy: "#0072b2", idle: "#56b4e9", starting: "#e69f00", draining: "#999999" },
    dark: { busy: "#2b8fd0", idle: "#8fd0f5", starting: "#e69f00", draining: "#8a8a8a" },
  };
  const dashes = ["solid", "dash", "dot"];
  const symbols = ["circle", "diamond", "square", "triangle-up", "x", "star", "pentagon"];
  const rounds = (i) => Math.floor(i / symbols.length);
  const theme = () => (dark.matches ? "dark" : "light");
  const color = (i) => palettes[theme()][i % palettes.light.length];
  const dash = (i) => dashes[rounds(i) % dashes.length];
  const symbol = (i) => symbols[i % symbols.length] + (rounds(i) ? "-open" : "");
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What marks a run: filled ones have an edge that sets them off, open ones are their edge.
  const mark = (i) => ({
    symbol: symbol(i),
    line: rounds(i) ? { color: color(i), width: 2 } : { color: ink("--card"), width: 1 },
  });

  // --- time -------------------------------------------------------------------------------------

  const end = Math.max(1, ...data.runs.map((run) => run.end_s), data.demand.load.length * data.demand.width_s);
  const units = [[2 * 3600, 60, "minutes"], [72 * 3600, 3600, "hours"], [Infinity, 86400, "days"]];
  const [, unit, unitName] = units.find(([longest]) => end < longest);
  const real = data.begins_ms !== null;
  // A point of the time axis: a date where times are real, else a number of units.
  const at = (s) => (real ? new Date(data.begins_ms + s * 1000).toISOString() : s / unit);
  const timeTitle = real ? "time (UTC)" : `${unitName} from the start`;
  // The starts of n stretches, and the end of the last one.
  const starts = (n, width) => Array.from({ length: n + 1 }, (_, i) => at(Math.min(i * width, end)));
  // The last number again, so that the last stretch is drawn to its end.
  const closed = (numbers) => (numbers.length ? [...numbers, numbers.at(-1)] : []);

  const length = (s) => {
    if (s < 10) return `${+s.toFixed(1)} s`;
    if (s < 600) return `${Math.round(s)} s`;
    if (s < 3600) return `${Math.round(s / 60)} min`;
    return `${+(s / 3600).toFixed(1)} h`;
  };

  // --- shape of all plots -----------------------------------------------------------------------

  const axis = ({ title, ...more }) => ({
    title: { text: title, font: { size: 13, color: ink("--muted") }, standoff: 10 },
    gridcolor: ink("--grid"), linecolor: ink("--line"), zerolinecolor: ink("--line"),
    tickcolor: ink("--line"), ticks: "outside", automargin: true, ...more,
  });

  const layout = (height, more) => ({
    height,
    margin: { l: 64, r: 16, t: 10, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: ink("--font"), size: 13, color: ink("--text") },
    hoverlabel: { bgcolor: ink("--card"), bordercolor: ink("--line"), font: { color: ink("--text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("--line"), activecolor: ink("--text") },
    showlegend: false,
    ...more,
  });

  const timeLayout = (title, more = {}) =>
    layout(260, {
      hovermode: "x unified",
      xaxis: axis({ title: timeTitle, type: real ? "date" : "linear", range: [at(0), at(end)], ...(real ? {} : { hoverformat: ".3~f" }) }),
      yaxis: axis({ title, rangemode: "tozero", fixedrange: true }),
      ...more,
    });

  // Lines across a plot, at a value of one axis.
  const rule = (along, value, dashed = "dash") => ({
    type: "line", layer: "below", line: { color: ink("--mark"), width: 1.5, dash: dashed },
    xref: along === "x" ? "x" : "paper", yref: along === "x" ? "paper" : "y",
    x0: along === "x" ? value : 0, x1: along === "x" ? value : 1,
    y0: along === "x" ? 0 : value, y1: along === "x" ? 1 : value,
  });
  const note = (text, more) => ({
    text, showarrow: false, font: { size: 12, color: ink("--muted") }, bgcolor: ink("--card"), ...more,
  });

  const wanted = [...new Set(data.runs.map((run) => run.wanted_s).filter((s) => s !== null))];
  const done = data.runs.map((run, i) => [run, i]).filter(([run]) => run.p95_s !== null);

  // A line of each run over time, the first above the others.
  const courses = (y, hover) =>
    done.map(([run, i]) => ({
      type: "scatter", mode: "lines", name: plain(run.name), meta: i, zorder: -i,
      x: starts(run.width_s ? y(run).length : 0, run.width_s), y: closed(y(run)),
      line: { color: color(i), dash: dash(i), width: i === 0 ? 2.2 : 1.6, shape: "hv" },
      ...hover(run),
    }));

  // --- the plots --------------------------------------------------------------------------------

  const { demand } = data;
  const demandX = starts(demand.load.length, demand.width_s);

  const arrivals = () => [
    [{
      type: "scatter", mode: "lines", name: "arrivals", x: demandX, y: closed(demand.jobs_a_minute),
      line: { color: ink("--text"), width: 1.2, shape: "hv" }, fill: "tozeroy", fillcolor: ink("--fill"),
      hovertemplate: "%{y:.4~g} jobs a minute<extra></extra>",
    }],
    timeLayout("jobs a minute"),
  ];

  const waiting = () => [
    courses((run) => run.waiting_most, (run) => ({
      customdata: closed(run.waiting_mean),
      hovertemplate: "%{y} at most, %{customdata:.3~g} on average",
    })),
    timeLayout("jobs waiting"),
  ];

  const longest = () => [
    courses((run) => run.longest_wait_s, () => ({ hovertemplate: "%{y:.4~g} s" })).map((line) => ({
      ...line, x: line.x.slice(0, -1), y: line.y.slice(0, -1), mode: "markers",
      marker: { size: 4, color: line.line.color, symbol: symbol(line.meta) },
    })),
    timeLayout("seconds", {
      shapes: wanted.map((s) => rule("y", s)),
      annotations: wanted.map((s) => note(`wanted ${length(s)}`, {
        x: 1, xref: "paper", xanchor: "right", y: s, yanchor: "bottom",
      })),
    }),
  ];

  const workers = () => [
    [
      ...courses((run) => run.workers_mean, () => ({ hovertemplate: "%{y:.3~g} workers" })),
      {
        type: "scatter", mode: "lines", name: "jobs if none waited", x: demandX, y: closed(demand.load),
        line: { color: ink("--muted"), width: 1, dash: "dot", shape: "hv" }, hovertemplate: "%{y:.3~g}",
      },
    ],
    timeLayout("workers"),
  ];

  const labour = () => {
    const run = data.runs[+element("whose").value];
    const x = starts(run.busy.length, run.width_s);
    const layer = (state) => ({
      type: "scatter", mode: "lines", stackgroup: "workers", name: state, x, y: closed(run[state]),
      line: { width: 0, shape: "hv" }, fillcolor: states[theme()][state], hovertemplate: "%{y:.3~g}",
    });
    const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" };
    const margin = { l: 64, r: 16, t: 34, b: 48 };
    return [
      ["busy", "idle", "starting", "draining"].map(layer),
      timeLayout("workers", { showlegend: true, legend, margin, height: 290 }),
    ];
  };

  const cpu = () => [
    courses((run) => run.cpu_mean, (run) => ({
      customdata: closed(run.cpu_most),
      hovertemplate: "%{y:.0f} % on average, %{customdata:.0f} % at most",
    })),
    timeLayout("% of the cores", { shapes: [rule("y", 100)] }),
  ];

  // Waits span seconds to days, so their axis is logarithmic, from the least that matters.
  const least = 0.1;
  const ticks = [least, 1, 10, 60, 600, 3600, 36000, 360000];
  const shown = (s) => Math.max(s, least);
  const waitAxis = (title, waits) =>
    axis({
      type: "log", title, tickvals: ticks, ticktext: ticks.map((s) => (s === least ? `≤ ${s} s` : length(s))),
      range: [Math.log10(Math.min(...waits.map(shown)) / 1.4), Math.log10(Math.max(...waits.map(shown)) * 1.6)],
    });

  const distribution = () => {
    const curves = done.map(([run, i]) => ({
      type: "scatter", mode: "lines", name: plain(run.name), meta: i, zorder: -i,
      x: [least, ...run.waits[0].map(shown)], y: [0, ...run.waits[1]],
      customdata: [0, ...run.waits[0]].map(length),
      line: { color: color(i), dash: dash(i), width: i === 0 ? 2.2 : 1.6, shape: "hv" },
      hovertemplate: "%{y:.4~g} % waited no longer than %{customdata}<extra>%{fullData.name}</extra>",
    }));
    const points = done.map(([run, i]) => ({
      type: "scatter", mode: "markers", name: plain(run.name), meta: i, zorder: -i,
      x: [shown(run.p95_s)], y: [95], customdata: [length(run.p95_s)],
      marker: { color: color(i), size: 9, ...mark(i) },
      hovertemplate: "95 % waited no longer than %{customdata}<extra>%{fullData.name}</extra>",
    }));
    const ends = done.map(([run]) => run.waits[0].at(-1) ?? least);
    return [
      [...curves, ...points],
      layout(340, {
        hovermode: "closest",
        xaxis: waitAxis("wait", [least, ...ends, ...wanted]),
        yaxis: axis({ title: "% of the jobs", range: [0, 101.5], fixedrange: true }),
        shapes: [rule("y", 95, "dot"), ...wanted.map((s) => rule("x", shown(s)))],
        annotations: [
          note("95 %", { x: 0, xref: "paper", xanchor: "left", y: 95, yanchor: "top" }),
          ...wanted.map((s) => note(`wanted ${length(s)}`, {
            x: Math.log10(shown(s)), y: 0.02, yref: "paper", yanchor: "bottom", xanchor: "left", xshift: 3,
          })),
        ],
      }),
    ];
  };

  // Worker-hours: logarithmic if they span much.
  const costAxis = (low, high) => {
    if (high <= 8 * low) return axis({ title: "worker-hours", range: [0, high * 1.12] });
    const tickvals = [-3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap((e) => [1, 2, 5].map((n) => n * 10 ** e));
    const range = [Math.log10(low / 1.4), Math.log10(high * 1.5)];
    return axis({ title: "worker-hours", type: "log", tickvals, ticktext: tickvals.map((v) => `${+v.toPrecision(3)}`), range });
  };
  const across = (value, [from, to]) => (value - from) / (to - from);

  // Where each name goes beside its mark so that it hides no other mark or name; null for nowhere.
  const besides = (marks, others, names, width) => {
    const taken = [...marks, ...others].map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
    const apart = (a, b) => a[2] < b[0] || b[2] < a[0] || a[3] < b[1] || b[3] < a[1];
    const inside = ([left, top, right]) => left >= 0 && top >= 0 && right <= width;
    return names.map((name, i) => {
      const [x, y] = marks[i];
      const w = 7 * name.length;
      const box = { "middle right": [x + 8, y - 8, x + 8 + w, y + 8], "middle left": [x - 8 - w, y - 8, x - 8, y + 8] };
      for (const [side, top] of [["top", y - 24], ["bottom", y + 8]]) {
        box[`${side} center`] = [x - w / 2, top, x + w / 2, top + 16];
        box[`${side} right`] = [x, top, x + w, top + 16];
        box[`${side} left`] = [x - w, top, x, top + 16];
      }
      const free = Object.keys(box).find((place) => inside(box[place]) && taken.every((other) => apart(other, box[place])));
      if (free) taken.push(box[free]);
      return free ?? null;
    });
  };

  const frontier = () => {
    const [futureWaits, futureHours] = data.future;
    const curves = data.frontiers.map(({ run, wanted_s, p95_s, worker_hours }) => ({
      type: "scatter", mode: "lines+markers", name: `${plain(data.runs[run].name)} told other waits`,
      x: p95_s.map(shown), y: worker_hours,
      customdata: wanted_s.map((s, i) => [length(s), length(p95_s[i])]),
      line: { color: color(run), dash: dash(run), width: 2 }, marker: { size: 7, color: color(run) },
      hovertemplate: "told %{customdata[0]}: 95 % waited no longer than %{customdata[1]}, for %{y:.4~g} worker-hours<extra>%{fullData.name}</extra>",
    }));
    const points = done.map(([run, i]) => ({
      type: "scatter", mode: "markers+text", name: plain(run.name),
      x: [shown(run.p95_s)], y: [run.worker_hours], customdata: [length(run.p95_s)],
      text: [plain(run.policy)], textfont: { size: 12 },
      marker: { color: color(i), size: run.ours ? 13 : 10, ...mark(i) },
      hovertemplate: "95 % waited no longer than %{customdata}, for %{y:.4~g} worker-hours<extra>%{fullData.name}</extra>",
    }));
    const future = {
      type: "scatter", mode: "lines", name: "knowing the future", x: futureWaits.map(shown), y: futureHours,
      customdata: futureWaits.map(length), fill: "tozeroy", fillcolor: ink("--fill"),
      line: { color: ink("--muted"), width: 2, dash: "dash" },
      hovertemplate: "95 % within %{customdata} for %{y:.4~g} worker-hours<extra>%{fullData.name}</extra>",
    };
    const all = [...curves, ...points];
    const costs = [...all.flatMap((t) => t.y), ...futureHours];
    const xaxis = waitAxis(
      "wait that 95 of 100 jobs did not exceed", [...all.flatMap((t) => t.x), ...futureWaits, ...wanted],
    );
    const yaxis = costAxis(Math.min(...costs), Math.max(...costs));
    const width = element("frontier").clientWidth - 84;
    const pixel = ([x, y]) => [
      across(Math.log10(x), xaxis.range) * width,
      (1 - across(yaxis.type === "log" ? Math.log10(y) : y, yaxis.range)) * 330,
    ];
    const spots = (traces) => traces.flatMap((t) => t.x.map((x, i) => pixel([x, t.y[i]])));
    const places = besides(spots(points), spots(curves), points.map((t) => t.text[0]), width);
    points.forEach((t, i) => (places[i] ? (t.textposition = places[i]) : (t.mode = "markers")));
    return [
      [...(futureWaits.length ? [{ ...future, mode: futureWaits.length > 1 ? "lines" : "markers" }] : []), ...all],
      layout(500, {
        hovermode: "closest", showlegend: true, margin: { l: 64, r: 16, t: 16, b: 48 },
        legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0 },
        xaxis, yaxis,
        shapes: wanted.map((s) => rule("x", shown(s))),
        annotations: wanted.map((s) => note(`wanted ${length(s)}`, {
          x: Math.log10(shown(s)), y: 0.99, yref: "paper", yanchor: "top", xanchor: "left", xshift: 3,
        })),
      }),
    ];
  };

  const times = { arrivals, waiting, longest, workers, labour, cpu };
  const plots = { ...times, distribution, frontier };
  const present = Object.keys(plots).filter((id) => element(id));

  // --- drawing and what a reader does -----------------------------------------------------------

  const unpack = async (id) => {
    const packed = Uint8Array.from(atob(element(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    element(id).remove();
  };

  const shows = (i) => data.runs[i].shown;
  // What all time plots show: two points of their axis, or null for all.
  let view = null;

  const draw = async (id) => {
    const [traces, shape] = plots[id]();
    for (const trace of traces) if ("meta" in trace) trace.visible = shows(trace.meta);
    if (id in times && view) shape.xaxis.range = view;
    await Plotly.react(id, traces, shape, config);
    if (id in times && view) await fit(id);
  };

  const drawAll = async () => {
    for (const id of present) await draw(id);
  };

  // Makes the height of a time plot fit what its window shows.
  const fit = async (id) => {
    const plot = element(id);
    if (!view) return Plotly.relayout(plot, { "yaxis.autorange": true });
    if (id === "labour") return null;
    const key = (x) => (real ? Date.parse(x) : x);
    const [from, to] = view.map((x) => (real ? Date.parse(`${x}`.replace(" ", "T") + (/Z$/.test(x) ? "" : "Z")) : x));
    // The line at 100 % stays in sight.
    let most = id === "cpu" ? 100 : 0;
    for (const { x, y, visible } of plot.data) {
      if (visible === false) continue;
      for (let i = 0; i < y.length; i++) {
        const stop = i + 1 < x.length ? key(x[i + 1]) : Infinity;
        if (y[i] !== null && key(x[i]) <= to && stop >= from) most = Math.max(most, y[i]);
      }
    }
    return Plotly.relayout(plot, { "yaxis.range": [0, (most || 1) * 1.06] });
  };

  // All time plots show the same time.
  let busy = false;
  const follow = (id) =>
    element(id).on("plotly_relayout", async (change) => {
      const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      const whole = change["xaxis.autorange"] === true;
      if (busy || (range[0] === undefined && !whole)) return;
      busy = true;
      view = whole ? null : range;
      const next = { "xaxis.range": view ?? [at(0), at(end)], "xaxis.autorange": false };
      for (const other of present.filter((other) => other in times)) {
        await Plotly.relayout(other, next);
        await fit(other);
      }
      busy = false;
    });

  const paint = () => {
    for (const chip of document.querySelectorAll(".chip")) {
      const i = +chip.dataset.run;
      chip.setAttribute("aria-pressed", data.runs[i].shown);
      chip.querySelector("i").style.borderTop = `3px ${{ solid: "solid", dash: "dashed", dot: "dotted" }[dash(i)]} ${color(i)}`;
    }
  };

  const redraw = async () => {
    paint();
    await drawAll();
  };

  for (const chip of document.querySelectorAll(".chip")) {
    chip.addEventListener("click", () => {
      const run = data.runs[+chip.dataset.run];
      run.shown = !run.shown;
      redraw();
    });
  }
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      for (const run of data.runs) run.shown = button.dataset.show === "all" || run.ours;
      redraw();
    });
  }
  element("whose")?.addEventListener("change", () => draw("labour"));
  dark.addEventListener("change", redraw);

  try {
    await unpack("plotly");
    paint();
    for (const id of present) element(id).replaceChildren();
    await drawAll();
    present.filter((id) => id in times).forEach(follow);
    document.body.dataset.drawn = present.length;
  } catch (error) {
    const told = element("trouble");
    told.textContent = `The plots could not be drawn (${error}). They need a browser of 2023 or later.`;
    told.hidden = false;
    throw error;
  }
})();
