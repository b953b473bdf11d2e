// Package slots shows that slots fire exactly once while servers are killed and while their clocks
// are wrong: each slot of each config fires when it is due by the database's clock, and creates
// one run. The package has tests only; SERVO_SOAK=10m makes them longer.
package slots
