package db

// BeginEngine begins a transaction and does what EnterEngine does, in one message: a round
// trip less for every transaction of the engine.
const BeginEngine = "begin;\n" + enterEngine

// FeedCluster is asked on connections before anything else is, past the counter of statements.
const FeedCluster = feedCluster
