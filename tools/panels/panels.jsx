// Draws a dashboard of deploy/monitoring from a Prometheus with Grafana's own components (@grafana/ui), for a picture
// where no Grafana is at hand. It replaces the parts of Grafana that the dashboards use: the variables of queries, the
// frames that the Prometheus data source makes of an answer, and the grid. docs/lab/monitoring.md has the commands.
//
//   panels.html?board=fleet&prometheus=http://127.0.0.1:9090&end=SECONDS&minutes=6&instance=arm-1
import {
  FieldConfigOptionsRegistry, FieldType, LoadingState, ThemeContext, applyFieldOverrides, createTheme,
  getDisplayValueAlignmentFactors, getFieldDisplayValues, standardTransformers,
  standardTransformersRegistry, toDataFrame, toUtc, transformDataFrame,
} from "@grafana/data";
import { BarGauge, BigValue, GlobalStyles, PanelChrome, Table, TimeSeries, VizRepeater } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { lastValueFrom } from "rxjs";

import fleet from "../../deploy/monitoring/dashboards/fleet.json";
import robot from "../../deploy/monitoring/dashboards/robot.json";
import server from "../../deploy/monitoring/dashboards/server.json";

const wanted = new URLSearchParams(location.search);
const board = { fleet, robot, server }[wanted.get("board") ?? "fleet"];
const end = Number(wanted.get("end") ?? Date.now() / 1000);
const start = end - 60 * Number(wanted.get("minutes") ?? 15);
const step = Math.max(1, Math.round((end - start) / 400));
const range = { from: toUtc(start * 1000), to: toUtc(end * 1000) };
const theme = createTheme({ colors: { mode: wanted.get("theme") ?? "light" } });
const cell = { width: 1384 / 24, height: 30, margin: 8 };

const standard = ["unit", "min", "max", "decimals", "color", "thresholds", "mappings", "links", "noValue"];
const custom = ["drawStyle", "lineWidth", "lineStyle", "fillOpacity", "showPoints", "spanNulls", "stacking",
  "thresholdsStyle", "align", "filterable", "cellOptions", "width", "minWidth"];
const option = (path, isCustom) => ({
  id: isCustom ? `custom.${path}` : path, path, isCustom, name: path, settings: {},
  process: (value) => value, shouldApply: () => true,
});
const options = [...standard.map((p) => option(p, false)), ...custom.map((p) => option(p, true))];
const registry = new FieldConfigOptionsRegistry(() => options);
const transformers = new Map(Object.values(standardTransformers).map((t) =>
  [t.id, { id: t.id, name: t.name, transformation: t }]));
standardTransformersRegistry.setInit(() => [...transformers.values()]);

const interpolate = (text) =>
  text.replaceAll("$__rate_interval", "1m").replaceAll("$instance", wanted.get("instance") ?? ".+");

async function query(target) {
  const [path, times] = target.instant ? ["query", { time: end }] : ["query_range", { start, end, step }];
  const asked = new URLSearchParams({ query: interpolate(target.expr), ...times });
  const answer = await (await fetch(`${wanted.get("prometheus")}/api/v1/${path}?${asked}`)).json();
  if (answer.status !== "success") {
    throw new Error(`${target.expr}: ${answer.error}`);
  }
  return answer.data.result.map(({ metric, value, values }) => ({ metric, values: values ?? [value] }));
}

// Grafana's panels draw no line where a value is not a number.
const finite = (text) => Number.isFinite(Number(text)) ? Number(text) : null;

// frames returns what Grafana's Prometheus data source makes of an answer: a frame for each series, or one as a table.
function frames(target, series, alone) {
  const field = (name, type, values, more) => ({ name, type, values, config: {}, ...more });
  const time = (rows) =>
    field("Time", FieldType.time, rows.map((r) => r[0] * 1000), { config: { interval: step * 1000 } });
  const number = (name, rows, more) => field(name, FieldType.number, rows.map((r) => finite(r[1])), more);
  if (target.format === "table") {
    const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort();
    const rows = series.map((s) => s.values[0]);
    const texts = labels.map((name) => field(name, FieldType.string, series.map((s) => s.metric[name] ?? "")));
    const name = alone ? "Value" : `Value #${target.refId}`;
    const fields = [time(rows), ...texts, number(name, rows)];
    return series.length ? [toDataFrame({ refId: target.refId, fields })] : [];
  }
  return series.map(({ metric, values }) => {
    const name = target.legendFormat.replace(/{{\s*(\w+)\s*}}/g, (_, label) => metric[label] ?? "");
    const value = number("Value", values, { labels: metric, config: { displayNameFromDS: name } });
    return toDataFrame({ refId: target.refId, fields: [time(values), value] });
  });
}

async function load(panel) {
  const answers = await Promise.all(panel.targets.map(query));
  const raw = panel.targets.flatMap((t, n) => frames(t, answers[n], panel.targets.length === 1));
  const data = await lastValueFrom(transformDataFrame(panel.transformations ?? [], raw));
  return applyFieldOverrides({
    data, fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry, replaceVariables: (text) => text, theme,
    timeZone: "utc",
  });
}

function Values({ panel, data, width, height }) {
  const { options, fieldConfig, type } = panel;
  const getValues = () => getFieldDisplayValues({
    fieldConfig, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, data, timeZone: "utc",
    sparkline: type === "stat" && options.graphMode !== "none",
  });
  const draw = ({ value, width, height, alignmentFactors, count }) => type === "bargauge"
    ? <BarGauge value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)}
      displayMode={options.displayMode} valueDisplayMode={options.valueMode}
      showUnfilled={options.showUnfilled} namePlacement={options.namePlacement}
      orientation={options.orientation} {...{ width, height, theme, alignmentFactors }} />
    : <BigValue value={value.display} sparkline={value.sparkline} {...{ width, height, theme, alignmentFactors, count }}
      colorMode={options.colorMode} graphMode={options.graphMode}
      justifyMode={options.justifyMode} textMode={options.textMode} />;
  return <VizRepeater getValues={getValues} renderValue={draw} source={data} itemSpacing={3} autoGrid
    getAlignmentFactors={getDisplayValueAlignmentFactors} orientation={options.orientation} {...{ width, height }} />;
}

function Content({ panel, data, width, height }) {
  if (panel.type === "stat" || panel.type === "bargauge") {
    return <Values {...{ panel, data, width, height }} />;
  }
  if (!data.some((frame) => frame.length)) {
    const style = { textAlign: "center", paddingTop: height / 2 - 10 };
    return <div style={style}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  }
  if (panel.type === "table") {
    return <Table data={data[0]} initialSortBy={panel.options.sortBy}
      cellHeight={panel.options.cellHeight} {...{ width, height }} />;
  }
  return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="utc"
    legend={panel.options.legend} options={{}} {...{ width, height }} />;
}

function Panel({ panel, data }) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * cell.width - cell.margin;
  const height = h * (cell.height + cell.margin) - cell.margin;
  const top = y * (cell.height + cell.margin) + cell.margin;
  return <div style={{ position: "absolute", left: x * cell.width + cell.margin, top }}>
    <PanelChrome title={panel.title} loadingState={LoadingState.Done} {...{ width, height }}>
      {(width, height) => <Content {...{ panel, data, width, height }} />}
    </PanelChrome>
  </div>;
}

const data = await Promise.all(board.panels.map(load));
createRoot(document.getElementById("board")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    {board.panels.map((panel, n) => <Panel key={panel.id} panel={panel} data={data[n]} />)}
  </ThemeContext.Provider>);
