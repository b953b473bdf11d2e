// Package quota shows that no quota is ever exceeded. Eight servers admit, claim and finish the
// tasks of one tenant that may have a hundred in flight. The test kills them all the time, most
// often the holder of the admission duty. The database counts inside every transaction that queues
// a task. The package has tests only.
package quota
