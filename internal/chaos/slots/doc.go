// Package slots holds the firing of slots to its promise while servers are killed: each slot of
// each config fires once, and makes one run. It has nothing but tests: SERVO_SOAK=10m makes
// them longer.
package slots
