package view

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Column is a stack of parts over one label.
type Column struct {
	Label string // below the column, if it has room
	Title string // the values in words
	Parts []Part
	Mark  string // the class of a dot above the column; "" without one
}

// Part is a piece of a column.
type Part struct {
	Value float64
	Class string
}

// Bars is a chart of columns, laid out.
type Bars struct {
	Title   string
	Axis    int // width of the labels of the vertical axis, in pixels
	Height  int
	Base    int // y of the lower end of columns
	Lines   []Mark
	Columns []laidColumn
	Labels  []Mark
	Empty   bool // all values are zero
}

// Mark is a label of an axis. At is in pixels on the vertical axis, in percent on the horizontal one.
type Mark struct {
	At       float64
	Label    string
	Optional bool // left out on small screens
}

// laidColumn is a column: its place is in percent of the plot, so that a chart fills any card.
type laidColumn struct {
	X, Width float64
	Title    string
	Pieces   []piece
	Mark     string
}

type piece struct {
	Y, Height int
	Class     string
}

// The sizes of a chart, in pixels; widths of the plot in percent.
const (
	barsTop   = 12
	barsPlot  = 116
	barsBelow = 22
	widestBar = 5.0
	mostMarks = 12 // labels of the horizontal axis
	charWidth = 6.4
)

// middle is the centre of a column.
func (c laidColumn) middle() float64 { return c.X + c.Width/2 }

// plotShare formats a place in a plot.
func plotShare(at float64) string {
	return strconv.FormatFloat(math.Round(at*1000)/1000, 'f', -1, 64) + "%"
}

// BarsOf lays out columns. Every value above zero is visible.
func BarsOf(title string, columns []Column, format func(float64) string) Bars {
	out := Bars{Title: title, Height: barsTop + barsPlot + barsBelow, Base: barsTop + barsPlot, Empty: true}
	if len(columns) == 0 {
		return out
	}
	most := 0.0
	for _, c := range columns {
		sum := 0.0
		for _, p := range c.Parts {
			sum += p.Value
		}
		most = max(most, sum)
	}
	out.Empty = most == 0
	top := ceiling(most)
	for _, share := range []float64{0, 0.5, 1} {
		line := Mark{At: float64(out.Base) - share*barsPlot, Label: format(top * share)}
		out.Lines = append(out.Lines, line)
		out.Axis = max(out.Axis, int(charWidth*float64(utf8.RuneCountInString(line.Label)))+12)
	}
	step := 100 / float64(len(columns))
	width := min(widestBar, step*0.75)
	each := max(1, int(math.Ceil(float64(len(columns))/mostMarks)))
	for i, c := range columns {
		middle := step * (float64(i) + 0.5)
		laid := laidColumn{X: middle - width/2, Width: width, Title: c.Title, Mark: c.Mark}
		y := out.Base
		for _, p := range c.Parts {
			if p.Value <= 0 {
				continue
			}
			height := max(2, int(p.Value/top*barsPlot))
			y -= height
			laid.Pieces = append(laid.Pieces, piece{Y: y, Height: height, Class: p.Class})
		}
		out.Columns = append(out.Columns, laid)
		if back := len(columns) - 1 - i; back%each == 0 && middle > 3 { // the last one always has its label
			out.Labels = append(out.Labels, Mark{At: middle, Label: c.Label, Optional: back/each%3 != 0})
		}
	}
	return out
}

// ceiling is the smallest round number that is not below most.
func ceiling(most float64) float64 {
	if most <= 0 {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(most)))
	for _, step := range []float64{1, 2, 4, 5, 10} {
		if most <= step*size {
			return step * size
		}
	}
	return 10 * size
}

// wholeNumber formats a value of an axis; fractions have no label.
func wholeNumber(value float64) string {
	if value != math.Trunc(value) {
		return ""
	}
	return Count(int64(value), false)
}

// seconds formats a duration of an axis.
func seconds(value float64) string { return Duration(time.Duration(value * float64(time.Second))) }

// viewBox is the viewBox attribute of a drawing.
func viewBox(width, height int) string { return fmt.Sprintf("0 0 %d %d", width, height) }

// anchor keeps the last label of an axis inside of the chart.
func anchor(i, n int) string {
	if i == n-1 && n > 1 {
		return "end"
	}
	return "middle"
}
