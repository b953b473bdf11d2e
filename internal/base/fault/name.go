package fault

import (
	"fmt"
	"regexp"
)

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}$`)

// CheckName returns a fault unless text is a name as configs, keys, channels and subscriptions have
// them. The example is for the remedy.
func CheckName(text, example string) error {
	if !namePattern.MatchString(text) {
		return Invalid("name", fmt.Sprintf("%.110q is not a valid name", text), "use up to 100 letters, digits, - _ and ., such as "+example)
	}
	return nil
}
