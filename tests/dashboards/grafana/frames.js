// What a data source hands to Grafana becomes what its panels are given.

import {
  applyFieldOverrides,
  dateTime,
  FieldType,
  Registry,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

// Settings that the dashboards may name; Grafana ignores others.
const STANDARD = ['unit', 'min', 'max', 'decimals', 'color', 'thresholds', 'displayName', 'noValue', 'mappings'];
const CUSTOM = {
  timeseries: [
    'drawStyle', 'lineInterpolation', 'lineWidth', 'lineStyle', 'fillOpacity', 'gradientMode', 'showPoints',
    'pointSize', 'spanNulls', 'stacking', 'axisPlacement', 'axisLabel', 'fillBelowTo', 'hideFrom',
  ],
  table: ['align', 'width', 'minWidth', 'cellOptions', 'filterable', 'hidden'],
};

standardTransformersRegistry.setInit(() => {
  const known = new Map(Object.values(standardTransformers).map((one) => [one.id, one])); // some have two names
  return [...known.values()].map((one) => ({ id: one.id, name: one.name, transformation: one }));
});

function settings(kind) {
  const item = (name, isCustom) => ({
    id: isCustom ? `custom.${name}` : name,
    path: name,
    name,
    isCustom,
    process: (value) => value,
    shouldApply: () => true,
  });
  return new Registry(() => [
    ...STANDARD.map((name) => item(name, false)),
    ...(CUSTOM[kind] ?? []).map((name) => item(name, true)),
  ]);
}

// A series of Prometheus, named by its legend.
function line(series, step) {
  return toDataFrame({
    refId: series.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.times.map((t) => t * 1000), config: { interval: step * 1000 } },
      {
        name: 'Value', type: FieldType.number, values: series.values, labels: series.labels,
        config: { displayNameFromDS: series.name },
      },
    ],
  });
}

function table(found) {
  return toDataFrame({ refId: found.refId, fields: found.fields });
}

/** The frames of a panel: made, transformed, and with its settings applied. */
export async function framesOf(panel, found, step, theme) {
  const raw = found.map((one) => (one.fields ? table(one) : line(one, step)));
  const shaped = await firstValueFrom(transformDataFrame(panel.transformations, raw));
  const thresholds = panel.fieldConfig.defaults.thresholds ?? {
    mode: 'absolute',
    steps: [{ value: -Infinity, color: 'green' }, { value: 80, color: 'red' }], // as Grafana fills in
  };
  return applyFieldOverrides({
    data: shaped,
    fieldConfig: { ...panel.fieldConfig, defaults: { ...panel.fieldConfig.defaults, thresholds } },
    fieldConfigRegistry: settings(panel.type),
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
}

export function range(from, to) {
  const ends = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  return { ...ends, raw: ends };
}
