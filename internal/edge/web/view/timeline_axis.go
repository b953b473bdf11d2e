package view

import (
	"net/url"
	"strconv"
	"time"
)

// with is the address of the timeline with a changed parameter.
func (t Timeline) with(name, value string) string {
	at, err := url.Parse(t.path)
	if err != nil {
		return t.path
	}
	query := at.Query()
	query.Del("row")
	if query.Del(name); value != "" {
		query.Set(name, value)
	}
	at.RawQuery = query.Encode()
	return at.String()
}

// zoom is the address of another part: the middle part, the whole run, or a part to the left or right.
func (t Timeline) zoom(factor, shift float64) string {
	at, err := url.Parse(t.path)
	if err != nil {
		return t.path
	}
	query := at.Query()
	query.Del("from")
	query.Del("to")
	if factor > 0 {
		length := t.End.Sub(t.Begin)
		middle := t.Begin.Add(length/2 + time.Duration(float64(length)*shift))
		half := time.Duration(float64(length) * factor / 2)
		query.Set("from", strconv.FormatInt(middle.Add(-half).UnixMilli(), 10))
		query.Set("to", strconv.FormatInt(middle.Add(half).UnixMilli(), 10))
	}
	at.RawQuery = query.Encode()
	return at.String()
}

// ticks are about six labels at round times.
func (t Timeline) ticks() (out []TimelineTick) {
	whole := max(t.End.Sub(t.Begin), time.Second)
	steps := []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	}
	step := steps[len(steps)-1]
	for _, candidate := range steps {
		if whole/candidate <= 6 {
			step = candidate
			break
		}
	}
	for at := time.Duration(0); at <= whole; at += step {
		label := "0"
		if at > 0 {
			label = "+" + Duration(at)
		}
		if share := float64(at) / float64(whole) * 100; share < 90 {
			out = append(out, TimelineTick{At: share, Label: label})
		}
	}
	return out
}

// segmentY and segmentHeight draw attempts higher than waits.
func segmentY(s Segment) int {
	if s.Kind == segRunning {
		return 3
	}
	return 7
}

func segmentHeight(s Segment) int {
	if s.Kind == segRunning {
		return 16
	}
	return 8
}

func caret(open bool) string {
	if open {
		return "▾"
	}
	return "▸"
}

func openText(open bool) string { return strconv.FormatBool(open) }
