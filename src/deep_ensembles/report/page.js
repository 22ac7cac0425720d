"use strict";
(() => {
  const slider = document.getElementById("wanted");
  if (!slider) return;
  const stops = JSON.parse(document.getElementById("stops").textContent);
  const drawn = document.querySelector("#kept svg");
  const places = drawn.querySelector("polyline").points;
  const mark = drawn.querySelector("circle.other");
  const show = () => {
    const place = Number(slider.value);
    const stop = stops[place];
    document.getElementById("wanted-value").textContent = stop.wanted;
    document.getElementById("answer").textContent = stop.answer;
    slider.setAttribute("aria-valuetext", stop.wanted);
    mark.setAttribute("cx", places[place].x);
    mark.setAttribute("cy", places[place].y);
  };
  slider.addEventListener("input", show);
  document.getElementById("slider").hidden = false;
  show();
})();
