package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// Window is the slot and data interval that parameters may refer to.
type Window struct {
	Slot       time.Time // zero if the run has no slot
	Start, End time.Time // the data interval; zero if the config has no slots
	At         time.Time // the slot, or the time of the trigger
}

// WindowAt returns the window of a slot, or with a zero slot that of a run that is triggered now.
// The data interval begins with the previous slot.
func WindowAt(s *schedule.Schedule, slot, now time.Time) Window {
	w := Window{Slot: slot, At: slot}
	if slot.IsZero() {
		w.At = now
	}
	if s == nil || !s.Timed() {
		return w
	}
	w.End = w.At
	var ok bool
	if w.Start, ok = s.Previous(w.End); !ok {
		w.Start = w.End
	}
	return w
}

// The syntax of a template: {{ NAME OFFSET… | FORMAT }}.
const (
	templateOpen, templateClose = "{{", "}}"
	maxOffset                   = 400 * 24 * time.Hour
	templateRemedy              = `write {{ slot }}, {{ interval.start }} or {{ interval.end }}, with offsets such as - 1d or + 2h and a format such as | date, | unix or | "%Y/%m/%d"`
)

// Templated reports whether the parameters contain templates.
func (s Spec) Templated() bool { return strings.Contains(string(s.Parameters), templateOpen) }

// Render inserts the slot and its interval into the parameters: each text may contain {{ slot }},
// {{ interval.start }} and {{ interval.end }}, with offsets and a format.
func (s Spec) Render(w Window) (json.RawMessage, error) {
	if !s.Templated() {
		return s.Parameters, nil
	}
	zone, err := schedule.Location(s.Timezone)
	if err != nil {
		return nil, fault.Invalid("timezone", "unknown time zone "+strconv.Quote(s.Timezone), "use a name of the IANA database, such as Europe/Berlin")
	}
	decoder := json.NewDecoder(strings.NewReader(string(s.Parameters)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fault.Invalid("parameters", "is not a JSON object", `send an object such as {"account": "1234"}`)
	}
	value, err = renderer{w, zone}.value("parameters", value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// Example returns the parameters for an example slot, to validate them against a pipeline.
func (s Spec) Example() (json.RawMessage, error) { return s.Render(Window{At: exampleSlot}) }

type renderer struct {
	window Window
	zone   *time.Location
}

func (r renderer) value(path string, value any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return r.text(path, v)
	case []any:
		for i := range v {
			if v[i], err = r.value(fmt.Sprintf("%s[%d]", path, i), v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = r.value(path+"."+key, v[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// text renders one text. A text that is a single template with the format unix becomes a number.
func (r renderer) text(path, text string) (any, error) {
	var out strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, templateOpen)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		inner, tail, closed := strings.Cut(after, templateClose)
		if !closed {
			return nil, fault.Invalid(path, "{{ has no }}", templateRemedy)
		}
		rendered, isNumber, problem := r.expression(inner)
		if problem != "" {
			return nil, fault.Invalid(path, fmt.Sprintf("%.100q: %s", strings.TrimSpace(inner), problem), templateRemedy)
		}
		if isNumber && out.Len() == 0 && tail == "" {
			return json.Number(rendered), nil
		}
		out.WriteString(rendered)
		rest = tail
	}
}

func (r renderer) expression(text string) (rendered string, isNumber bool, problem string) {
	left, format, _ := strings.Cut(text, "|")
	words := strings.Fields(left)
	if len(words) == 0 {
		return "", false, "empty template"
	}
	var at time.Time
	switch words[0] {
	case "slot":
		at = r.window.At
	case "interval.start", "interval.end":
		at = r.window.At
		if !r.window.End.IsZero() {
			at = r.window.End
			if words[0] == "interval.start" {
				at = r.window.Start
			}
		}
	default:
		return "", false, "unknown name " + words[0]
	}
	if len(words)%2 == 0 {
		return "", false, "an offset needs a sign and a duration"
	}
	at = at.In(r.zone)
	for i := 1; i < len(words); i += 2 {
		if at, problem = offset(at, words[i], words[i+1]); problem != "" {
			return "", false, problem
		}
	}
	format = strings.TrimSpace(format)
	rendered, problem = formatted(at, format)
	return rendered, format == "unix", problem
}

// offset shifts a local time by calendar days and weeks (1d, 2w), or by elapsed time (36h).
func offset(at time.Time, sign, text string) (time.Time, string) {
	factor := 1
	switch sign {
	case "+":
	case "-":
		factor = -1
	default:
		return at, "an offset must begin with + or -"
	}
	for unit, days := range map[string]int{"d": 1, "w": 7} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.Atoi(digits)
			if err != nil || n < 0 || n*days > int(maxOffset/(24*time.Hour)) {
				return at, text + " is not an offset of at most 400 days"
			}
			return at.AddDate(0, 0, factor*n*days), ""
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxOffset {
		return at, text + " is not an offset such as 1d, 2w, 36h or 90m"
	}
	return at.Add(time.Duration(factor) * d), ""
}

// formatted formats a local time. Without a format it is RFC 3339 in UTC.
func formatted(at time.Time, format string) (text, problem string) {
	switch format {
	case "":
		return at.UTC().Format(time.RFC3339), ""
	case "date":
		return at.Format(time.DateOnly), ""
	case "local":
		return at.Format(time.RFC3339), ""
	case "unix":
		return strconv.FormatInt(at.Unix(), 10), ""
	}
	if len(format) < 3 || format[0] != '"' || format[len(format)-1] != '"' {
		return "", "unknown format " + format
	}
	layouts := map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'j': "002", 'z': "-0700", 'y': "06"}
	var out strings.Builder
	pattern := format[1 : len(format)-1]
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			out.WriteByte(pattern[i])
			continue
		}
		if i++; i == len(pattern) {
			return "", "% at the end of the format"
		}
		switch layout, ok := layouts[pattern[i]]; {
		case ok:
			out.WriteString(at.Format(layout))
		case pattern[i] == 's':
			out.WriteString(strconv.FormatInt(at.Unix(), 10))
		case pattern[i] == '%':
			out.WriteByte('%')
		default:
			return "", "unknown %" + string(pattern[i]) + " in the format"
		}
	}
	return out.String(), ""
}
