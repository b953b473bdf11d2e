// Package bench measures Servo: tasks per second from trigger to completion, and the cost of each
// in statements, rows, WAL and CPU time. It uses the engine and the API as servers and workers do, and never
// writes to the database directly.
package bench
