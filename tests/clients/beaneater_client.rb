# The client beaneater, with a server on the port of the argument.
require 'beaneater'

def expect(wanted, got)
  raise "#{wanted.inspect} instead of #{got.inspect}" unless wanted == got
end

beanstalk = Beaneater.new("127.0.0.1:#{ARGV.fetch(0)}")
tube = beanstalk.tubes['mail']
id = tube.put("two\r\nlines", pri: 3, delay: 0, ttr: 60)[:id]
expect("two\r\nlines", tube.peek(:ready).body)
expect(1, tube.stats.current_jobs_ready)
beanstalk.tubes.watch!('mail')
job = beanstalk.tubes.reserve(1)
expect([id, "two\r\nlines", true], [job.id, job.body, job.reserved?])
expect([3, 60, 'mail', 'reserved'], [job.pri, job.ttr, job.tube, job.stats.state])
job.touch
job.release(pri: 9, delay: 0)
job = beanstalk.tubes.reserve(1)
expect(9, job.pri)
job.bury
expect("two\r\nlines", tube.peek(:buried).body)
expect('KICKED', tube.kick(5)[:status])
job = beanstalk.jobs.find(id)
expect('ready', job.stats.state)
job.delete
expect(nil, beanstalk.jobs.find(id))
begin
  beanstalk.tubes.reserve(0)
  raise 'there is a job'
rescue Beaneater::TimedOutError
end
tube.put('later', delay: 100)
expect('later', tube.peek(:delayed).body)
tube.pause(100)
expect(100, tube.stats.pause)
tube.pause(0)
tube.clear
expect(nil, tube.peek(:delayed))
expect(%w[default mail], beanstalk.tubes.all.map(&:name).sort)
expect(['mail'], beanstalk.tubes.watched.map(&:name))
expect(true, beanstalk.stats.total_jobs >= 2)
seen = []
beanstalk.jobs.register('mail') { |each| seen << each.body; raise Beaneater::AbortProcessingError if seen.size == 2 }
2.times { |n| tube.put(n.to_s) }
beanstalk.jobs.process!(reserve_timeout: 1)
expect(%w[0 1], seen)
beanstalk.close
