// The parts of Apache ECharts that the pages use; scripts/build-charts makes echarts.js of them.
import * as core from 'echarts/core';
import { CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';

core.use([
  CustomChart, LineChart, ScatterChart, DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent,
  CanvasRenderer,
]);
export const { init, graphic, version } = core;
