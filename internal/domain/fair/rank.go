package fair

import "time"

const (
	// OldestEvery is how often a tenant's next task in a pool is its oldest ready task, regardless of
	// priority. So a task with n older ones before it is admitted with one of the next
	// OldestEvery × (n + 1) tasks of its tenant, however many urgent ones arrive.
	OldestEvery = 8

	mostUrgent = 10 // priorities are 1 to 10
	// levelSize separates the ranks of two priorities. A time in microseconds is below it until
	// the year 2255.
	levelSize = 1 << 53
)

// Rank orders the ready tasks of one tenant and pool, the lowest first: by priority (10 is the most
// urgent), then by the time since which they are ready.
func Rank(priority int16, readySince time.Time) int64 {
	return int64(min(max(mostUrgent-priority, 0), mostUrgent))*levelSize + readySince.UnixMicro()
}

// OldestTurns returns how many of a tenant's next n tasks are its oldest ones, after a number of
// admitted tasks.
func OldestTurns(admitted int64, n int) int {
	return int((admitted+int64(n))/OldestEvery - admitted/OldestEvery)
}

// Turns returns the order in which a tenant's ready tasks are admitted, after a number of admitted
// tasks: by rank, and every OldestEvery-th time the oldest. A task that is in both lists is returned
// once. The order has at most most tasks.
func Turns[T any, K comparable](admitted int64, ranked, oldest []T, key func(T) K, most int) []T {
	given := make(map[K]bool, most)
	next := func(from *[]T) (task T, ok bool) {
		for len(*from) > 0 {
			task, *from = (*from)[0], (*from)[1:]
			if !given[key(task)] {
				return task, true
			}
		}
		return task, false
	}
	var order []T
	for len(order) < most {
		first, second := &ranked, &oldest
		if (admitted+int64(len(order))+1)%OldestEvery == 0 {
			first, second = second, first
		}
		task, ok := next(first)
		if !ok {
			task, ok = next(second)
		}
		if !ok {
			break
		}
		given[key(task)] = true
		order = append(order, task)
	}
	return order
}
