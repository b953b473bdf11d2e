package servotest

import (
	"os"
	"testing"
	"time"
)

// soakVariable is set by `make soak` to the duration of each long test.
const soakVariable = "SERVO_SOAK"

// Size is the size of a test whose long form runs in `make soak`: smoke in `make test`, and long
// when SERVO_SOAK is set.
func Size(smoke, long int) int {
	if os.Getenv(soakVariable) == "" {
		return smoke
	}
	return long
}

// Duration is how long a test disturbs its system: smoke in `make test`, and the value of
// SERVO_SOAK when it is set.
func Duration(t testing.TB, smoke time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(soakVariable)
	if text == "" {
		return smoke
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s=%s: %v", soakVariable, text, err)
	}
	return long
}
