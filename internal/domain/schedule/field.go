package schedule

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The fields of an expression, in the order in which they are written.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	fieldCount
)

// fieldSpecs describes the values of each field. Sunday is 0 and 7.
var fieldSpecs = [fieldCount]struct {
	name            string
	least, greatest int
	names           []string // the first is the name of 0
	hint            string   // how values are written, for errors
}{
	second:     {"second", 0, 59, nil, "a number"},
	minute:     {"minute", 0, 59, nil, "a number"},
	hour:       {"hour", 0, 23, nil, "a number"},
	dayOfMonth: {"day of month", 1, 31, nil, "a number"},
	month: {
		"month", 1, 12,
		[]string{"", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
		"a month: use JAN to DEC or 1 to 12",
	},
	dayOfWeek: {"day of week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, "a day: use MON to SUN or 0 to 7"},
}

// The forms of an item. Signs, `*-5`, `?/2` and empty items are errors: other programs read each
// of them in a way that its author did not intend.
var (
	itemRange    = regexp.MustCompile(`^(?:\*|([0-9]{1,4}|[A-Za-z]{3})(?:-([0-9]{1,4}|[A-Za-z]{3}))?)(?:/([0-9]{1,4}))?$`)
	itemMonthDay = regexp.MustCompile(`^(?i:L(?:-([0-9]{1,2}))?|(LW)|([0-9]{1,2})W)$`)
	itemWeekday  = regexp.MustCompile(`^(?i:([0-7]|[a-z]{3})(?:#([0-9])|L))$`)
)

// itemError describes an invalid item. Without a remedy, the error suggests a valid expression.
type itemError struct{ reason, remedy string }

func (e *itemError) Error() string { return e.reason }

func itemErrorf(format string, args ...any) error {
	return &itemError{reason: fmt.Sprintf(format, args...)}
}

// parseField parses a list of items: the set of their values and, for days, the rules.
func parseField(field int, text string) (set uint64, rules []dayRule, err error) {
	items := strings.Split(text, ",")
	for _, item := range items {
		values, rule, err := parseItem(field, item)
		if err == nil && item == "?" && len(items) > 1 {
			err = itemErrorf("? cannot be combined with other items")
		}
		if wrong, ok := err.(*itemError); ok { //nolint:errorlint // never wrapped
			reason := fmt.Sprintf("%s %.64q: %s", fieldSpecs[field].name, text, wrong.reason)
			if wrong.remedy != "" {
				return 0, nil, cronFaultWith(reason, wrong.remedy)
			}
			return 0, nil, cronFault(reason)
		}
		set |= values
		if rule != nil {
			rules = append(rules, rule)
		}
	}
	return set, rules, nil
}

// parseItem parses one item of a list into a set of values or a rule.
func parseItem(field int, item string) (set uint64, rule dayRule, err error) {
	least, greatest := fieldSpecs[field].least, fieldSpecs[field].greatest
	switch {
	case item == "":
		return 0, nil, itemErrorf("an item of the list is empty")
	case item == "?":
		if field != dayOfMonth && field != dayOfWeek {
			return 0, nil, itemErrorf("? is for the day of month and the day of week")
		}
		return valuesBetween(least, greatest, 1), nil, nil
	case field == dayOfMonth && itemMonthDay.MatchString(item):
		rule, err = parseMonthDay(itemMonthDay.FindStringSubmatch(item))
		return 0, rule, err
	case field == dayOfWeek && strings.EqualFold(item, "L"):
		return 1 << 6, nil, nil // the last day of the week, which Quartz ends on Saturday
	case field == dayOfWeek && itemWeekday.MatchString(item):
		rule, err = parseWeekday(itemWeekday.FindStringSubmatch(item))
		return 0, rule, err
	}
	parts := itemRange.FindStringSubmatch(item)
	if parts == nil {
		return 0, nil, itemErrorf("invalid item %.64q", item)
	}
	set, err = parseRange(field, item, parts[1], parts[2], parts[3])
	return set, nil, err
}

// parseRange parses a value, a range or all values (low is empty), with or without a step.
func parseRange(field int, item, low, high, stepText string) (uint64, error) {
	from, to := fieldSpecs[field].least, fieldSpecs[field].greatest
	var err error
	if low != "" {
		if from, err = parseValue(field, low); err != nil {
			return 0, err
		}
		switch {
		case high == "" && stepText == "":
			to = from
		case field == dayOfWeek && from < 7:
			to = 6 // a step without an end stops on Saturday: 7 is Sunday again
		}
	}
	if high != "" {
		if to, err = parseValue(field, high); err != nil {
			return 0, err
		}
		if from > to {
			return 0, &itemError{reason: fmt.Sprintf("the range %q ends before it begins", item), remedy: "write " + splitRange(field, from, to, stepText)}
		}
	}
	step, _ := strconv.Atoi(cmp.Or(stepText, "1"))
	switch {
	case step < 1:
		return 0, itemErrorf("step %s is less than 1", stepText)
	case step > 1 && step > to-from:
		return 0, itemErrorf("step %s does not fit the range %d to %d", stepText, from, to)
	}
	return valuesBetween(from, to, step), nil
}

func valuesBetween(from, to, step int) (set uint64) {
	for n := from; n <= to; n += step {
		set |= 1 << n
	}
	return set
}

// splitRange writes a range that wraps around its field as ranges that do not: Fri-Sun as 5-7,
// 22-3 as 22-23,0-3.
func splitRange(field, from, to int, step string) string {
	if step != "" {
		step = "/" + step
	}
	part := func(from, to int) string {
		if from == to {
			return strconv.Itoa(from)
		}
		return fmt.Sprintf("%d-%d%s", from, to, step)
	}
	least, greatest := fieldSpecs[field].least, fieldSpecs[field].greatest
	if field == dayOfWeek {
		if least = 1; to == 0 {
			return part(from, greatest)
		}
	}
	return part(from, greatest) + "," + part(least, to)
}

// parseValue parses a number, or the name of a month or a weekday.
func parseValue(field int, text string) (int, error) {
	spec := fieldSpecs[field]
	if n, err := strconv.Atoi(text); err == nil {
		return n, checkBounds(n, spec.least, spec.greatest)
	}
	if n := slices.Index(spec.names, strings.ToUpper(text)); n >= 0 {
		return n, nil
	}
	return 0, itemErrorf("%q is not %s", text, spec.hint)
}

func checkBounds(n, least, greatest int) error {
	if n < least || n > greatest {
		return itemErrorf("%d is out of range (%d to %d)", n, least, greatest)
	}
	return nil
}

// dayRule returns the day that an item selects in a month that begins on a weekday: 0 is the first
// day. A result outside of the month selects none.
type dayRule func(weekday, length int) int

// parseMonthDay parses L, L-3, LW and 15W.
func parseMonthDay(parts []string) (dayRule, error) {
	before, lastWeekday, nearest := parts[1], parts[2], parts[3]
	switch {
	case lastWeekday != "":
		return func(weekday, length int) int { return nearestWeekday(length-1, weekday, length) }, nil
	case nearest != "":
		n, _ := strconv.Atoi(nearest)
		return func(weekday, length int) int { return nearestWeekday(n-1, weekday, length) }, checkBounds(n, 1, 31)
	case before != "":
		n, _ := strconv.Atoi(before)
		return func(_, length int) int { return length - 1 - n }, checkBounds(n, 1, 30)
	default:
		return func(_, length int) int { return length - 1 }, nil
	}
}

// nearestWeekday returns the day from Monday to Friday of the same month that is nearest to a day.
// A month without the day has none.
func nearestWeekday(day, weekday, length int) int {
	if day >= length {
		return -1
	}
	switch (weekday + day) % 7 {
	case 6: // Saturday
		if day == 0 {
			return 2
		}
		return day - 1
	case 0: // Sunday
		if day == length-1 {
			return day - 2
		}
		return day + 1
	}
	return day
}

// parseWeekday parses 5#3, the third Friday, and 5L, the last one.
func parseWeekday(parts []string) (dayRule, error) {
	if parts[2] == "0" || parts[2] > "5" {
		return nil, itemErrorf("a weekday occurs 1 to 5 times in a month, not %s", parts[2])
	}
	n, err := parseValue(dayOfWeek, parts[1])
	if err != nil {
		return nil, err
	}
	nth, _ := strconv.Atoi(parts[2])
	return func(weekday, length int) int {
		first := (n - weekday + 7) % 7
		if nth == 0 {
			return first + (length-1-first)/7*7
		}
		return first + 7*(nth-1)
	}, nil
}
