// Package quota shows that no quota is ever exceeded: eight servers admit, claim and finish the
// tasks of one tenant that may have a hundred in flight, and are killed all the time, the one
// that holds the admission duty most of all. The database itself counts, inside of every
// transaction that queues a task. There is nothing here but tests.
package quota
