package schedule

import "slices"

// Template is a named schedule, which can be used in place of an expression.
type Template struct {
	Name        string
	Expression  string
	Description string
}

// Templates returns the built-in templates, in the order of their names.
func Templates() []Template {
	return []Template{
		{"daily-9am", "0 9 * * *", "every day at 09:00"},
		{"daily-midnight", "0 0 * * *", "every day at midnight"},
		{"hourly", "0 * * * *", "every hour on the hour"},
		{"weekdays-9am", "0 9 * * 1-5", "Monday to Friday at 09:00"},
		{"weekly-monday-8am", "0 8 * * 1", "every Monday at 08:00"},
	}
}

// Resolve returns the expression of a built-in template.
func Resolve(name string) (expression string, ok bool) {
	all := Templates()
	i := slices.IndexFunc(all, func(t Template) bool { return t.Name == name })
	if i < 0 {
		return "", false
	}
	return all[i].Expression, true
}
