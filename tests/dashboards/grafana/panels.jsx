// Panels as Grafana's own components draw them, with the options that a dashboard gives.

import { FieldType, getDisplayValueAlignmentFactors, getFieldDisplayValues } from '@grafana/data';
import { BarGauge, BigValue, Table, TimeSeries, VizRepeater } from '@grafana/ui';

function Lines({ panel, frames, range, width, height }) {
  if (!frames.length) return <Empty />;
  return (
    <TimeSeries
      frames={frames} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
      legend={panel.options.legend} options={panel.options}
    >
      {() => null}
    </TimeSeries>
  );
}

function Repeated({ panel, frames, theme, width, height, one }) {
  const values = () =>
    getFieldDisplayValues({
      fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, data: frames, theme,
      replaceVariables: (text) => text, timeZone: 'utc',
    });
  if (!frames.some((frame) => frame.fields.some((field) => field.type === FieldType.number))) return <Empty />;
  return (
    <VizRepeater
      getValues={values} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={one}
      width={width} height={height} source={frames} renderCounter={0}
      orientation={panel.options.orientation} autoGrid={panel.type === 'stat'} itemSpacing={10}
    />
  );
}

function Values(given) {
  const { options } = given.panel;
  return (
    <Repeated
      {...given}
      one={({ value, alignmentFactors, width, height, count }) => (
        <BigValue
          value={value.display} alignmentFactors={alignmentFactors} count={count} width={width} height={height}
          colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode}
          textMode={options.textMode} theme={given.theme}
        />
      )}
    />
  );
}

function Bars(given) {
  const { options } = given.panel;
  return (
    <Repeated
      {...given}
      one={({ value, alignmentFactors, orientation, width, height }) => (
        <BarGauge
          value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)}
          alignmentFactors={alignmentFactors} orientation={orientation} width={width} height={height}
          theme={given.theme} displayMode={options.displayMode} valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement} showUnfilled={options.showUnfilled} itemSpacing={10}
        />
      )}
    />
  );
}

function Rows({ frames, width, height }) {
  if (!frames.length || !frames[0].length) return <Empty />;
  return <Table data={frames[0]} width={width} height={height} columnMinWidth={100} />;
}

function Empty() {
  return <div className="empty">No data</div>;
}

export const KINDS = { timeseries: Lines, stat: Values, bargauge: Bars, table: Rows };
