// A dashboard as a page: Grafana's grid, frames and panels, over answers that lie beside it.

import { createTheme, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { framesOf, range } from './frames';
import { KINDS } from './panels';

const COLUMNS = 24, CELL = 30, GAP = 8, WIDTH = 1400, PADDING = 16; // as in Grafana, but for the width

function box({ x, y, w, h }) {
  const column = (WIDTH - 2 * PADDING - GAP * (COLUMNS - 1)) / COLUMNS;
  return {
    left: x * (column + GAP), top: y * (CELL + GAP),
    width: w * column + (w - 1) * GAP, height: h * CELL + (h - 1) * GAP,
  };
}

function Board({ told, frames, theme }) {
  const { board, caption } = told;
  const high = Math.max(...board.panels.map(({ gridPos: g }) => (g.y + g.h) * (CELL + GAP)));
  return (
    <div id="board" style={{ width: WIDTH, padding: PADDING, background: theme.colors.background.canvas }}>
      <h1 style={{ fontSize: 18, margin: '0 0 12px' }}>{board.title}</h1>
      <div style={{ position: 'relative', height: high }}>
        {board.panels.map((panel) => {
          const at = box(panel.gridPos);
          const Kind = KINDS[panel.type];
          return (
            <div key={panel.id} data-panel={panel.id} data-title={panel.title} style={{ position: 'absolute', ...at }}>
              <PanelChrome title={panel.title} description={panel.description} width={at.width} height={at.height}>
                {(width, height) => (
                  <Kind
                    panel={panel} frames={frames[panel.id]} theme={theme} range={range(told.from, told.to)}
                    width={width} height={height}
                  />
                )}
              </PanelChrome>
            </div>
          );
        })}
      </div>
      <p style={{ color: theme.colors.text.secondary, margin: 0 }}>{caption}</p>
    </div>
  );
}

async function show() {
  const told = await (await fetch('told.json')).json();
  const theme = createTheme({ colors: { mode: 'light' } });
  const frames = {};
  for (const panel of told.board.panels) {
    frames[panel.id] = await framesOf(panel, told.found[panel.id], told.step, theme);
  }
  await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 14px Inter`)));
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Board told={told} frames={frames} theme={theme} />
    </ThemeContext.Provider>
  );
  await new Promise((done) => setTimeout(done, 1000)); // charts draw in frames of their own
  window.shown = true;
}

show().catch((error) => {
  window.failed = String(error.stack ?? error);
});
