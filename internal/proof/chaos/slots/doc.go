// Package slots holds the firing of slots to its promise while servers are killed, and while
// their clocks are wrong: each slot of each config fires once, when the database says that it is
// due, and makes one run. It has nothing but tests: SERVO_SOAK=10m makes them longer.
package slots
