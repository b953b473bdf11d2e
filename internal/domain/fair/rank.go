package fair

import "time"

const (
	// OldestEvery is how often a tenant's next task in a pool is the one that is ready longest,
	// whatever its priority. So a task with n older ones before it is admitted with one of the
	// next OldestEvery × (n + 1) tasks of its tenant, however many urgent ones arrive.
	OldestEvery = 8

	mostUrgent = 10 // priorities are 1 to 10
	// levelSize separates the ranks of two priorities. A time in microseconds is below it until
	// the year 2255.
	levelSize = 1 << 53
)

// Rank orders the ready tasks of one tenant and pool, the lowest first: by priority (10 is the
// most urgent), then by how long they are ready.
func Rank(priority int16, readySince time.Time) int64 {
	return int64(min(max(mostUrgent-priority, 0), mostUrgent))*levelSize + readySince.UnixMicro()
}

// OldestTurns is how many of a tenant's next n tasks are the ones that are ready longest, after
// so many that were admitted before.
func OldestTurns(admitted int64, n int) int {
	return int((admitted+int64(n))/OldestEvery - admitted/OldestEvery)
}

// Turns is the order in which a tenant's ready tasks are admitted, after so many before them:
// by rank, and each OldestEvery-th time the one that is ready longest. A task may be in both
// lists; it is given once. The order has no more than most tasks.
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
