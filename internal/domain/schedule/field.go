package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mistake is what is wrong with an item; without a remedy the one of every expression helps.
type mistake struct{ reason, remedy string }

// bounds are the least and the greatest number of each field. Sunday is 0 and 7.
var bounds = [fieldCount][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}} //nolint:gochecknoglobals // a constant

// checkField refuses what the parser would misunderstand, and writes in its words what it
// would not understand.
func checkField(field int, text string) (string, error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		rewritten, wrong := checkItem(field, item)
		if wrong.reason == "" && item == "?" && len(items) > 1 {
			wrong.reason = "? must stand alone"
		}
		if wrong.reason != "" {
			reason := fmt.Sprintf("%s %.64q: %s", fieldNames[field], text, wrong.reason)
			if wrong.remedy != "" {
				return "", cronFaultWith(reason, wrong.remedy)
			}
			return "", cronFault(reason)
		}
		items[i] = rewritten
	}
	return strings.Join(items, ","), nil
}

// checkItem looks at one item of a list; the reason is empty if it is well-formed.
func checkItem(field int, item string) (rewritten string, wrong mistake) {
	switch {
	case item == "":
		return "", mistake{reason: "an item of the list is empty"}
	case itemStar.MatchString(item):
		_, step, _ := strings.Cut(item, "/")
		return item, checkStep(step, bounds[field][0], bounds[field][1])
	case item == "?":
		if field != dayOfMonth && field != dayOfWeek {
			return "", mistake{reason: "? is for the day of month and the day of week"}
		}
		return item, mistake{}
	case field == dayOfMonth && itemMonthDay.MatchString(item):
		return item, checkMonthDay(item)
	case field == dayOfWeek && strings.EqualFold(item, "L"):
		return "6", mistake{} // the last day of the week, which Quartz ends on Saturday
	case field == dayOfWeek && itemNth.MatchString(item):
		day, nth, _ := strings.Cut(item, "#")
		if nth < "1" || nth > "5" {
			return "", mistake{reason: "a month has the days of a week 1 to 5 times, not " + nth}
		}
		return item, checkValue(field, day)
	case field == dayOfWeek && itemLast.MatchString(item):
		return item[:len(item)-1] + "#L", checkValue(field, item[:len(item)-1])
	}
	parts := itemRange.FindStringSubmatch(item)
	if parts == nil {
		return "", mistake{reason: fmt.Sprintf("%.64q is not understood", item)}
	}
	return checkRange(field, item, parts[1], parts[2], strings.TrimPrefix(parts[3], "/"))
}

// checkRange looks at a number or a range, with or without a step.
func checkRange(field int, item, low, high, step string) (rewritten string, wrong mistake) {
	for _, end := range []string{low, high} {
		if wrong := checkValue(field, end); wrong.reason != "" {
			return "", wrong
		}
	}
	from, to := valueOf(field, low), bounds[field][1]
	if high != "" {
		to = valueOf(field, high)
	}
	if wrong := checkStep(step, from, max(from, to)); wrong.reason != "" && from <= to {
		return "", wrong
	}
	if high == "" {
		if step != "" && field == dayOfWeek && valueOf(field, low) <= 6 {
			return low + "-6/" + step, mistake{} // to the end of the week: 7 is Sunday again
		}
		return item, mistake{}
	}
	if from > to {
		return "", mistake{reason: fmt.Sprintf("the range %q ends before it begins", item), remedy: "write " + split(field, from, to, step)}
	}
	return item, mistake{}
}

// split writes a range over the end of its field as ranges that do not go over it: Fri-Sun as 5-7,
// 22-3 as 22-23,0-3.
func split(field, from, to int, step string) string {
	if step != "" {
		step = "/" + step
	}
	part := func(from, to int) string {
		if from == to {
			return strconv.Itoa(from)
		}
		return fmt.Sprintf("%d-%d%s", from, to, step)
	}
	least, greatest := bounds[field][0], bounds[field][1]
	if field == dayOfWeek {
		if least = 1; to == 0 {
			return part(from, greatest)
		}
	}
	return part(from, greatest) + "," + part(least, to)
}

// checkValue looks at a number or the name of a month or a day; "" is none.
func checkValue(field int, text string) mistake {
	if text == "" {
		return mistake{}
	}
	least, greatest := bounds[field][0], bounds[field][1]
	if n, err := strconv.Atoi(text); err == nil {
		if n < least || n > greatest {
			return mistake{reason: fmt.Sprintf("%s is not from %d to %d", text, least, greatest)}
		}
		return mistake{}
	}
	if valueOf(field, text) >= 0 {
		return mistake{}
	}
	names := map[int]string{month: "a month: use JAN to DEC or 1 to 12", dayOfWeek: "a day: use MON to SUN or 0 to 7"}
	if known, ok := names[field]; ok {
		return mistake{reason: fmt.Sprintf("%q is not %s", text, known)}
	}
	return mistake{reason: fmt.Sprintf("%q is not a number", text)}
}

// checkStep looks at a step, which is shorter than its range; "" is none.
func checkStep(step string, from, to int) mistake {
	n, err := strconv.Atoi(step)
	switch size := to - from + 1; {
	case step == "":
		return mistake{}
	case err != nil || n < 1:
		return mistake{reason: "a step is at least 1, not " + step}
	case n > 1 && n >= size:
		return mistake{reason: fmt.Sprintf("a step of %s does not fit the range from %d to %d", step, from, to)}
	}
	return mistake{}
}

// checkMonthDay looks at L, L-3, LW and 15W.
func checkMonthDay(item string) mistake {
	digits := strings.Trim(item, "lLwW-")
	if digits == "" {
		return mistake{}
	}
	if n, err := strconv.Atoi(digits); err != nil || n < 1 || n > 31 || n == 31 && strings.HasPrefix(strings.ToUpper(item), "L-") {
		return mistake{reason: digits + " is not a day of a month"}
	}
	return mistake{}
}

// valueOf is the number that an end of a range stands for; -1 if there is no such name.
func valueOf(field int, text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	names := map[int][]string{
		month:     {"", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
		dayOfWeek: {"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
	}
	return slices.Index(names[field], strings.ToUpper(text))
}
