package schedule_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// The oracle knows the rules and nothing of the package: it walks through real instants one
// by one, reads the local clock with package time, and keeps a list of what it has seen.
// Expressions are made together with what they mean, so it does not parse either.

// expression is a text and its meaning.
type expression struct {
	text     string
	date     func(day time.Time) bool // a day of the calendar, as midnight UTC
	clock    func(h, m, s int) bool
	realTime bool
	seconds  bool // can match at other seconds than 0
}

func (e expression) matches(reading int64) bool {
	local := time.Unix(reading, 0).UTC()
	h, m, s := local.Clock()
	return e.clock(h, m, s) && e.date(local.Truncate(24*time.Hour))
}

// field is a part of an expression: the values that it names, and whether it begins with *.
type field struct {
	text   string
	values map[int]bool
	star   bool
}

// numbers draws a list of numbers, ranges and steps.
func numbers(t *rapid.T, name string, low, high int, names []string) field {
	f := field{values: map[int]bool{}}
	var items []string
	word := func(n int) string {
		if n-low < len(names) && rapid.Bool().Draw(t, name+" by name") {
			return names[n-low]
		}
		return fmt.Sprint(n)
	}
	for range rapid.IntRange(1, 3).Draw(t, name+" items") {
		from, to, step, text := low, high, 1, "*"
		switch rapid.IntRange(0, 5).Draw(t, name+" form") {
		case 0:
		case 1, 2:
			from = rapid.IntRange(low, high).Draw(t, name)
			to, text = from, word(from)
		case 3:
			from = rapid.IntRange(low, high).Draw(t, name+" from")
			to = rapid.IntRange(from, high).Draw(t, name+" to")
			text = word(from) + "-" + word(to)
		case 4:
			step = rapid.IntRange(1, high-low).Draw(t, name+" step")
			text = fmt.Sprintf("*/%d", step)
		case 5:
			from = rapid.IntRange(low, high-1).Draw(t, name+" start")
			step = rapid.IntRange(1, high-from).Draw(t, name+" step")
			text = fmt.Sprintf("%d/%d", from, step)
		}
		for n := from; n <= to; n += step {
			f.values[n] = true
		}
		items = append(items, text)
	}
	f.text = strings.Join(items, ",")
	f.star = strings.HasPrefix(f.text, "*")
	return f
}

// monthDays draws a field of days of the month and what it means.
func monthDays(t *rapid.T) (text string, star bool, matches func(time.Time) bool) {
	last := func(day time.Time) time.Time { return day.AddDate(0, 1, -day.Day()) }
	isLast := func(day time.Time) bool { return day.AddDate(0, 0, 1).Month() != day.Month() }
	workday := func(day time.Time) bool { return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday }
	switch rapid.IntRange(0, 8).Draw(t, "kind of day of month") {
	case 0, 1:
		return "*", true, func(time.Time) bool { return true }
	case 2:
		return "?", true, func(time.Time) bool { return true }
	case 3:
		return "L", false, isLast
	case 4:
		n := rapid.IntRange(1, 30).Draw(t, "days before the last")
		return fmt.Sprintf("L-%d", n), false, func(day time.Time) bool {
			return day.AddDate(0, 0, n).Month() == day.Month() && isLast(day.AddDate(0, 0, n))
		}
	case 5:
		return "LW", false, func(day time.Time) bool {
			for d := last(day.AddDate(0, 0, 1-day.Day())); ; d = d.AddDate(0, 0, -1) {
				if workday(d) {
					return d.Equal(day)
				}
			}
		}
	case 6:
		n := rapid.IntRange(1, 31).Draw(t, "near day")
		return fmt.Sprintf("%dW", n), false, func(day time.Time) bool {
			target := time.Date(day.Year(), day.Month(), n, 0, 0, 0, 0, time.UTC)
			if target.Month() != day.Month() {
				return false
			}
			for _, distance := range []int{0, -1, 1, -2, 2} {
				d := target.AddDate(0, 0, distance)
				// a Saturday goes back and a Sunday ahead, each if it can
				if target.Weekday() == time.Sunday {
					d = target.AddDate(0, 0, -distance)
				}
				if workday(d) && d.Month() == target.Month() {
					return d.Equal(day)
				}
			}
			return false
		}
	default:
		f := numbers(t, "day of month", 1, 31, nil)
		return f.text, f.star, func(day time.Time) bool { return f.values[day.Day()] }
	}
}

// weekdays draws a field of weekdays and what it means.
func weekdays(t *rapid.T) (text string, star bool, matches func(time.Time) bool) {
	weekday := rapid.IntRange(0, 7)
	switch rapid.IntRange(0, 6).Draw(t, "kind of weekday") {
	case 0, 1, 2:
		return "*", true, func(time.Time) bool { return true }
	case 3:
		return "?", true, func(time.Time) bool { return true }
	case 4:
		n, w := rapid.IntRange(1, 5).Draw(t, "nth"), weekday.Draw(t, "weekday")
		return fmt.Sprintf("%d#%d", w, n), false, func(day time.Time) bool {
			return int(day.Weekday()) == w%7 && (day.Day()-1)/7 == n-1
		}
	case 5:
		w := weekday.Draw(t, "last weekday")
		return fmt.Sprintf("%dL", w), false, func(day time.Time) bool {
			return int(day.Weekday()) == w%7 && day.AddDate(0, 0, 7).Month() != day.Month()
		}
	default:
		f := numbers(t, "weekday", 0, 6, []string{"SUN", "mon", "Tue", "WED", "THU", "FRI", "SAT"})
		return f.text, f.star, func(day time.Time) bool { return f.values[int(day.Weekday())] }
	}
}

// expressions draws any expression; with seconds, or at second 0.
func expressions(seconds bool) *rapid.Generator[expression] {
	return rapid.Custom(func(t *rapid.T) expression {
		second := field{text: "0", values: map[int]bool{0: true}}
		if seconds {
			second = numbers(t, "second", 0, 59, nil)
		}
		minute, hour := numbers(t, "minute", 0, 59, nil), numbers(t, "hour", 0, 23, nil)
		month := field{text: "*"}
		if rapid.IntRange(0, 3).Draw(t, "some months") == 0 {
			month = numbers(t, "month", 1, 12, []string{"jan", "FEB", "Mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"})
		}
		dates, anyDate, byDate := monthDays(t)
		days, anyDay, byDay := weekdays(t)
		text := strings.Join([]string{minute.text, hour.text, dates, month.text, days}, " ")
		if seconds || rapid.Bool().Draw(t, "six fields") {
			text = second.text + " " + text
		}
		return expression{
			text:     text,
			realTime: minute.star || hour.star,
			seconds:  seconds,
			clock:    func(h, m, s int) bool { return hour.values[h] && minute.values[m] && second.values[s] },
			date: func(day time.Time) bool {
				if month.values != nil && !month.values[int(day.Month())] {
					return false
				}
				if !anyDate && !anyDay {
					return byDate(day) || byDay(day)
				}
				return byDate(day) && byDay(day)
			},
		}
	})
}

// oracle lists the slots in (after, until] by walking.
func oracle(e expression, zone *time.Location, after, until time.Time) []time.Time {
	reading := func(instant int64) int64 {
		_, offset := time.Unix(instant, 0).In(zone).Zone()
		return instant + int64(offset)
	}
	const before = 30 * 60 * 60 // what the clock has shown by then counts for folds
	start := after.Unix() - before
	step := int64(60)
	if e.seconds || reading(start)%60 != start%60 || reading(until.Unix())%60 != until.Unix()%60 {
		step = 1
	}
	start -= (reading(start)%step + step) % step

	var slots []time.Time
	// one mark for each reading that there can be
	lowest := reading(start) - 30*60*60
	marks := make([]bool, (until.Unix()-start+120*60*60)/step+1)
	seen := func(reading int64) bool {
		mark := &marks[(reading-lowest)/step]
		before := *mark
		*mark = true
		return before
	}
	last := reading(start) - step
	for instant := start; instant <= until.Unix(); instant += step {
		now := reading(instant)
		fires := e.matches(now)
		if !e.realTime {
			fires = !seen(now) && fires
			for skipped := last + step; skipped < now; skipped += step {
				fires = (!seen(skipped) && e.matches(skipped)) || fires
			}
		}
		if fires && instant > after.Unix() && instant >= 0 {
			slots = append(slots, time.Unix(instant, 0).UTC())
		}
		last = now
	}
	return slots
}
